"""The Kafka protocol and the log format as bytes: no I/O, no asyncio."""
