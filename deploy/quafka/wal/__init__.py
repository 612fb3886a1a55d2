"""`quafka wal`: the log of a data folder, without its broker."""
