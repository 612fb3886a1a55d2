"""Redis Streams as partitions: entries are records, entry ids are offsets."""
