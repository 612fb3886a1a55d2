"""Redis Streams as partitions."""
