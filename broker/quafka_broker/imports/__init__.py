"""Copies topics from Apache Kafka's log folders into a broker's log."""
