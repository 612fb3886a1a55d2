"""SASL, by which clients prove who they are: bytes in, bytes out."""
