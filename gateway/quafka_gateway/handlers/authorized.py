"""Kafka's "authorized operations" fields: bits of AclOperation.

There is no authorizer yet, so a resource has all operations of its kind, as Kafka answers without
an authorizer. Where the request does not include them, they are AUTHORIZED_OPERATIONS_UNKNOWN.
"""

from __future__ import annotations

from quafka_proto.errors import ErrorCode
from quafka_proto.schema.metadata import AUTHORIZED_OPERATIONS_UNKNOWN

AUTHORIZER_DISABLED = ErrorCode.SECURITY_DISABLED
NO_AUTHORIZER = "no authorizer is configured"
"""The error of the ACL APIs."""

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = range(3, 9)
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = range(9, 13)


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


_TOPIC = _bits(
    _READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS
)
_GROUP = _bits(_READ, _DELETE, _DESCRIBE)
_CLUSTER = _bits(
    _CREATE, _ALTER, _DESCRIBE, _CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS,
    _IDEMPOTENT_WRITE,
)  # fmt: skip


def topic_operations(*, requested: bool) -> int:
    """Return the operations allowed on a topic."""
    return _TOPIC if requested else AUTHORIZED_OPERATIONS_UNKNOWN


def group_operations(*, requested: bool) -> int:
    """Return the operations allowed on a group."""
    return _GROUP if requested else AUTHORIZED_OPERATIONS_UNKNOWN


def cluster_operations(*, requested: bool) -> int:
    """Return the operations allowed on the cluster."""
    return _CLUSTER if requested else AUTHORIZED_OPERATIONS_UNKNOWN
