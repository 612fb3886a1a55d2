"""`quafka import`."""
