"""Partitions of virtual topics: ids, offsets, indexes, producers, epochs."""
