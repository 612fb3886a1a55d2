"""`quafka snapshot`: snapshots of a broker's log."""
