"""Limits of a cluster in an object store (cluster_format.py)."""

MOST_SHARDS = 1_024
