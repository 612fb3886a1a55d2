"""Finds the rules that filters match (KIP-140, KIP-290)."""

from __future__ import annotations

from collections.abc import Sequence

from quafka_loop.slices import Slices
from quafka_mesh_ops.acl_filters import filter_error, matches
from quafka_mesh_ops.ops.security import AclFilter, AclRecord
from quafka_proto.errors import ErrorCode

_PER_SLICE = 200
_MOST_BYTES = 32 << 20
"""The maximum bytes of the rules in an answer, if all characters take four bytes."""
_COST = 50


async def find(
    filters: Sequence[AclFilter], rules: Sequence[AclRecord]
) -> list[tuple[ErrorCode, list[AclRecord]]] | None:
    """The error of each filter and the rules that it matches; None: too many for one answer."""
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
