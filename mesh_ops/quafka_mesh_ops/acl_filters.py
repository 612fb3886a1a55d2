"""Which rules a filter matches (KIP-140, KIP-290): at the broker and at gateways."""

from __future__ import annotations

from quafka_mesh_ops.ops.security import AclFilter, AclRecord
from quafka_proto.errors import ErrorCode

_ANY, _MATCH, _LITERAL = 1, 2, 3
_WILDCARD = "*"
_KNOWN_RESOURCES = range(1, 8)
_KNOWN_PATTERNS = range(1, 5)
_KNOWN_OPERATIONS = range(1, 16)
_KNOWN_PERMISSIONS = range(1, 4)


def filter_error(wanted: AclFilter) -> ErrorCode:
    """The error of a filter with an unknown number."""
    known = (
        wanted.resource_type in _KNOWN_RESOURCES
        and wanted.pattern_type in _KNOWN_PATTERNS
        and wanted.operation in _KNOWN_OPERATIONS
        and wanted.permission_type in _KNOWN_PERMISSIONS
    )
    return ErrorCode.NONE if known else ErrorCode.INVALID_REQUEST


def matches(wanted: AclFilter, acl: AclRecord) -> bool:
    """Whether a filter matches a rule."""
    return (
        wanted.resource_type in (_ANY, acl.resource_type)
        and wanted.operation in (_ANY, acl.operation)
        and wanted.permission_type in (_ANY, acl.permission_type)
        and wanted.principal in (None, acl.principal)
        and wanted.host in (None, acl.host)
        and _matches_pattern(wanted, acl)
    )


def _matches_pattern(wanted: AclFilter, acl: AclRecord) -> bool:
    """MATCH: the rules that apply to a resource of this name."""
    if wanted.pattern_type not in (_ANY, _MATCH, acl.pattern_type):
        return False
    name = wanted.resource_name
    if name is None:
        return True
    if wanted.pattern_type != _MATCH:
        return name == acl.resource_name
    if acl.pattern_type == _LITERAL:
        return acl.resource_name in (name, _WILDCARD)
    return name.startswith(acl.resource_name)
