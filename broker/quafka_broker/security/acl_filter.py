"""Which rules a filter matches (KIP-140, KIP-290)."""

from __future__ import annotations

from collections.abc import Sequence

from quafka_mesh_ops.ops.security import AclFilter, AclRecord
from quafka_proto.errors import ErrorCode
from quafka_telemetry.slices import Slices

_PER_SLICE = 200
_MOST_BYTES = 32 << 20
"""Of the rules in an answer, where all texts are of characters that take four bytes."""
_COST = 50

_ANY, _MATCH, _LITERAL, _PREFIXED = 1, 2, 3, 4
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


async def find(
    filters: Sequence[AclFilter], rules: Sequence[AclRecord]
) -> list[tuple[ErrorCode, list[AclRecord]]] | None:
    """The error of each filter, and the rules that it matches; None: too many for one answer."""
    slices = Slices(_PER_SLICE)
    found: list[tuple[ErrorCode, list[AclRecord]]] = []
    size = 0
    for wanted in filters:
        error = filter_error(wanted)
        its: list[AclRecord] = []
        for at in range(0, 0 if error else len(rules), _PER_SLICE):
            some = [acl for acl in rules[at : at + _PER_SLICE] if matches(wanted, acl)]
            its += some
            size += sum(map(_size, some))
            if size > _MOST_BYTES:
                return None
            await slices.done(_PER_SLICE)
        found.append((error, its))
        await slices.done()
    return found


def _size(acl: AclRecord) -> int:
    return _COST + 4 * (len(acl.resource_name) + len(acl.principal) + len(acl.host))
