"""Checks of a cluster that any Kafka client can make, for `quafka doctor` and the console."""
