"""Reads Apache Kafka's log folders, without writing to them. Blocks; for threads and tools."""
