"""Offsets of groups, translated from the source's partitions to those of the copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from quafka.copying.job import CopiedPartition
from quafka_client import group_offsets, groups
from quafka_client.cluster import ClientCluster
from quafka_client.errors import ClientError, RequestRefusedError
from quafka_client.group_offsets import Place
from quafka_client.groups import GroupListing
from quafka_proto.errors import ErrorCode

_SHARE = "share"


@dataclass(frozen=True, slots=True)
class Translated:
    """A group's offset in a partition, and in its copy. `error`: why it was not committed."""

    group: str
    topic: str
    partition: int
    source_offset: int
    offset: int
    error: str | None


async def translate(
    source: ClientCluster,
    target: ClientCluster,
    partitions: Sequence[CopiedPartition],
    patterns: Sequence[str],
) -> list[Translated]:
    """Commit the offsets of matching groups for the copies. No group of the target goes back.

    Groups of the target that have members are left alone: those have offsets of their own. Raises
    ClientError.
    """
    by_source = {each.source: each for each in partitions}
    found: list[Translated] = []
    for group in await groups.listed(source):
        if _is_wanted(group, patterns):
            found += await _group(group, target, by_source)
    return found


def _is_wanted(group: GroupListing, patterns: Sequence[str]) -> bool:
    return (
        group.kind != _SHARE
        and not groups.keeps_copy_state(group.group)
        and any(fnmatchcase(group.group, pattern) for pattern in patterns)
    )


async def _group(
    group: GroupListing, target: ClientCluster, by_source: Mapping[Place, CopiedPartition]
) -> list[Translated]:
    theirs = await group_offsets.fetch_offsets(group.coordinator, group.group)
    wanted: dict[Place, tuple[int, int]] = {}
    for place, offset in theirs.items():
        partition = by_source.get(place)
        translated = None if partition is None else partition.known.translate(offset)
        if partition is not None and translated is not None:
            wanted[partition.target] = (offset, translated)
    if not wanted:
        return []
    try:
        before = await group_offsets.committed_offsets(target, group.group)
    except RequestRefusedError as e:
        if e.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        before = {}
    ahead = {place: new for place, (_, new) in wanted.items() if new > before.get(place, -1)}
    errors: Mapping[Place, str | None] = {}
    if ahead:
        try:
            errors = await group_offsets.commit(target, group.group, ahead)
        except ClientError as e:
            errors = dict.fromkeys(ahead, str(e))
    return [
        Translated(group.group, *place, offset, before.get(place, new), errors.get(place))
        if place not in ahead
        else Translated(group.group, *place, offset, new, errors.get(place))
        for place, (offset, new) in wanted.items()
    ]
