"""The names of a reader's columns: those of Spark's own Kafka source.

Spark starts a Python process for each step of its planning, so this module does not import Arrow.
"""

HEADERS = "headers"
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", HEADERS)
"""All columns, in their order; `headers` only with `includeHeaders`."""
FROM_BATCH_HEADERS = frozenset({"topic", "partition", "offset", "timestampType"})
"""The columns that need no records, only the headers of their batches."""
