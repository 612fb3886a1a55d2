"""The sources of partitions' records: the log, or other systems."""
