"""Where the records of a topic's partitions come from: the log, or what others have written."""
