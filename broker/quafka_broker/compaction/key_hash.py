"""The hash by which a pass of compaction knows a key."""

HASH_SIZE = 16
"""Bytes."""
