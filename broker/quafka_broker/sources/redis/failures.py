"""Failures of a Redis server, for the broker's loop; errors.py creates them."""

from __future__ import annotations

from quafka_broker.partitions.errors import StorageError


class RedisUnavailableError(StorageError):
    """The server cannot be reached, or cannot serve; a new connection may help."""


class RefusedByRedisError(StorageError):
    """Redis refused a command; the connection is sound. Nothing was written."""


class ReadOnlyRedisError(RefusedByRedisError):
    """The server is a replica. Another address may now be the master."""
