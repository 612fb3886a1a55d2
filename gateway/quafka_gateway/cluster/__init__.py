"""The brokers of one org as one cluster."""
