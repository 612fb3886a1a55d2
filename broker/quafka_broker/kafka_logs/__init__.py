"""Reads Apache Kafka's own log folders. Writes nothing, blocks; for threads and tools."""
