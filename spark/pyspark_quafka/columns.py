"""The columns that a reader gets, by name: those of Spark's own Kafka source.

Spark starts a Python for each step of its planning: what only names columns imports no Arrow.
"""

HEADERS = "headers"
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", HEADERS)
"""All of them, in their order; `headers` is only there with `includeHeaders`."""
FROM_BATCH_HEADERS = frozenset({"topic", "partition", "offset", "timestampType"})
"""What is known without looking at records."""
