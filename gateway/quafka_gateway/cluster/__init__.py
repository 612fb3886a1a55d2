"""The brokers behind this gateway, as one cluster."""
