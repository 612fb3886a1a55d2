"""Sockets of Kafka clients: accepting, framing, ordering requests, writing responses."""
