"""Maps Redis's errors to errors of a partition's records.

Each gives the topics of its server a retriable error. The reason names the kind of failure and
never includes text from Redis or the network, which could contain a secret or another user's data.
"""

from __future__ import annotations

import ssl

from redis import exceptions

from quafka_broker.partitions.errors import StorageError
from quafka_broker.sources.redis.bounded import AnswerTooLargeError
from quafka_broker.sources.redis.failures import (
    ReadOnlyRedisError,
    RedisUnavailableError,
    RefusedByRedisError,
)
from quafka_broker.sources.source import BadSourceError

_UNAVAILABLE: tuple[tuple[type[Exception], str], ...] = (
    (exceptions.AuthenticationError, "Redis refuses the user or the password"),
    (exceptions.AuthorizationError, "Redis refuses the user or the password"),
    (exceptions.BusyLoadingError, "Redis is loading its data"),
    (exceptions.MasterDownError, "the replica has lost its master"),
    (exceptions.TimeoutError, "Redis did not answer in time"),
    (exceptions.MaxConnectionsError, "all connections to Redis are in use"),
    (exceptions.ConnectionError, "Redis cannot be reached"),
    (ssl.SSLError, "TLS with Redis failed"),
    (TimeoutError, "Redis did not answer in time"),
    (OSError, "Redis cannot be reached"),
)
_REFUSED: tuple[tuple[type[Exception], str], ...] = (
    (exceptions.OutOfMemoryError, "Redis is out of memory"),
    (exceptions.NoPermissionError, "Redis's access rules forbid the command"),
    (AnswerTooLargeError, "the answer is larger than sources.redis.answer.bytes"),
)
_READ_ONLY = "this Redis is a replica: it is read-only"
_WORDS = (
    ("WRONGTYPE", "the key holds another type than a stream"),
    ("OOM", "Redis is out of memory"),
    ("MISCONF", "Redis cannot save its data and refuses writes"),
    ("NOREPLICAS", "Redis has too few replicas and refuses writes"),
    ("NOPERM", "Redis's access rules forbid the command"),
    ("MOVED", "this Redis is a part of a cluster, which is not supported"),
    ("CLUSTERDOWN", "this Redis is a part of a cluster, which is not supported"),
    ("BUSY", "Redis is busy with another script"),
)


UNEXPECTED = (
    exceptions.RedisError, OSError, ValueError, TypeError, AttributeError, LookupError,
    RecursionError, MemoryError,
)  # fmt: skip
"""Errors of the client, and of parsing answers that Redis would not send."""


def failure_of(error: BaseException) -> StorageError:
    """The failure behind an exception of the client, or of parsing its answers."""
    if isinstance(error, StorageError):
        return error
    for kind, reason in _REFUSED:
        if isinstance(error, kind):
            return RefusedByRedisError(reason)
    if isinstance(error, exceptions.ReadOnlyError):
        return ReadOnlyRedisError(_READ_ONLY)
    for kind, reason in _UNAVAILABLE:
        if isinstance(error, kind):
            return RedisUnavailableError(reason)
    if isinstance(error, exceptions.ResponseError):
        return refusal_of(str(error))
    if isinstance(error, BadSourceError):
        return RedisUnavailableError(str(error))
    return RefusedByRedisError(f"Redis's answer is not understood ({type(error).__name__})")


def refusal_of(text: str) -> StorageError:
    """The failure behind an error reply."""
    start = text[:200]
    if "NOAUTH" in start:
        return RedisUnavailableError("Redis asks for a password")
    if "READONLY" in start:
        return ReadOnlyRedisError(_READ_ONLY)
    for word, reason in _WORDS:
        if word in start:
            return RefusedByRedisError(reason)
    return RefusedByRedisError("Redis refused the command")
