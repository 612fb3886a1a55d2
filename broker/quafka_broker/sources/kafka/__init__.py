"""Serves topics of Apache Kafka's log folders, read only and in place."""
