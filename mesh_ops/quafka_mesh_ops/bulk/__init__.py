"""Bulk answers over TLS 1.3 on TCP, beside the QUIC connection that carries every op."""
