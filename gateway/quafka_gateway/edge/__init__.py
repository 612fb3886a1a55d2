"""Sockets of Kafka clients: accept, frame, decode, trace, answer."""
