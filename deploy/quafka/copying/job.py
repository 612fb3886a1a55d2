"""A copy job: its two clusters, its topics, and where each partition continues.

A job keeps its state in the target cluster, as the committed offsets of a group of its own: for
each partition of a copy the next offset to read at the source, with the source's name and the map
of offsets as metadata. They are committed in the transaction that writes the records, so that a
job that was killed continues exactly behind the last record that it has written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quafka.commands.kafka_client import Troubles, config
from quafka.copying.offset_map import OffsetTranslation
from quafka_client import configs, group_offsets, offsets, topics
from quafka_client.cluster import ClientCluster
from quafka_client.configs import ConfigResourceKind
from quafka_client.errors import ClientError, RequestRefusedError, about, check, sentence
from quafka_client.group_offsets import Place
from quafka_client.security import ClientSecurity
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.metadata import MetadataResponse, MetadataResponseTopic

_VERSION = "1"
_AT_ONCE = 500
NOT_COPIED = frozenset(
    {
        "follower.replication.throttled.replicas", "leader.replication.throttled.replicas",
        "message.timestamp.difference.max.ms", "message.timestamp.type", "min.insync.replicas",
        "unclean.leader.election.enable",
    }
)  # fmt: skip
"""Configs that fit the source's brokers only; MirrorMaker leaves out the same ones."""


@dataclass(frozen=True, slots=True)
class Side:
    """A cluster, and how to connect to it."""

    bootstrap: list[tuple[str, int]]
    security: ClientSecurity
    timeout: float

    def cluster(self) -> ClientCluster:
        """A connection for requests about the cluster, not open yet."""
        return ClientCluster(self.bootstrap, self.timeout, self.security)

    def settings(self, troubles: Troubles) -> dict[str, Any]:
        """The settings of a producer or consumer of librdkafka."""
        return config(self.bootstrap, self.security, troubles)


@dataclass(frozen=True, slots=True)
class Job:
    """What is copied. `group`: the group with its state, also its transactional id.

    `appends`: whether a copy may be added to records that another program wrote.
    """

    group: str
    source: Side
    target: Side
    with_configs: bool = True
    appends: bool = False
    compression: str = "none"
    runs: int = 4096


@dataclass(slots=True)
class CopiedPartition:
    """A partition and its copy. `position`: the next offset to read; `end`: that of the source."""

    source: Place
    target: Place
    position: int
    end: int
    known: OffsetTranslation
    origin: str
    lost: int = 0
    """Records that the source deleted before they were copied, as far as offsets show it."""

    @property
    def metadata(self) -> str:
        """What is committed with the position."""
        return f"{_VERSION} {self.origin} {self.known.packed()}"


async def reach(job: Job) -> None:
    """Connect to both clusters once: librdkafka's own errors do not name a wrong login.

    Raises ClientError.
    """
    async with job.source.cluster(), job.target.cluster():
        pass


async def partitions_of(
    job: Job,
    source: ClientCluster,
    target: ClientCluster,
    names: Mapping[str, str],
) -> list[CopiedPartition]:
    """The partitions of some topics, by the names of their copies, where the job continues.

    Topics and partitions that the target lacks are created. Raises ClientError.
    """
    metadata = await source.metadata(list(names))
    found = {topic.name or "": topic for topic in metadata.topics}
    for topic in found.values():
        check(topic.error_code, f"topic {topic.name!r}")
    await _check_other(metadata, target, names)
    copies = await _copies(job, source, target, found, names)
    connection = await target.coordinator(job.group)
    state = await group_offsets.fetch_with_metadata(connection, job.group)
    starts = await offsets.list_offsets_of(source, found.values(), offsets.START)
    ends = await offsets.list_offsets_of(source, found.values(), offsets.END, committed=True)
    partitions: list[CopiedPartition] = []
    new: list[CopiedPartition] = []
    for name, topic in found.items():
        # Of servers without topic ids, an end before the position shows a new topic.
        uuid = topics.uuid_text(topic.topic_id) or "-"
        origin = f"{metadata.cluster_id or '-'} {name} {uuid}"
        for number in sorted(each.partition_index for each in topic.partitions):
            place, its_copy = (name, number), (names[name], number)
            start, end = starts[place], ends[place]
            known = OffsetTranslation(most=job.runs)
            made = CopiedPartition(place, its_copy, start, end, known, origin)
            if its_copy in state:
                position, made.known = _continued(made, *state[its_copy], job)
                made.lost = max(0, start - position)
                made.position = max(position, start)
                if position > end:
                    raise _created_anew(name)
            else:
                new.append(made)
            partitions.append(made)
    if not job.appends:
        await _check_empty(target, copies, new)
    return partitions


def _continued(
    partition: CopiedPartition, position: int, metadata: str, job: Job
) -> tuple[int, OffsetTranslation]:
    # librdkafka sends the text with the zero byte at its end.
    version, _, rest = metadata.rstrip("\0").partition(" ")
    origin, _, runs = rest.rpartition(" ")
    if version == _VERSION and origin.split()[:2] == partition.origin.split()[:2]:
        if origin != partition.origin:
            raise _created_anew(partition.source[0])
    else:
        raise ClientError(
            f"group {job.group!r} has the state of a copy of another topic, not of "
            f"{partition.source[0]!r}; use another name"
        )
    try:
        return position, OffsetTranslation.unpacked(runs, job.runs)
    except ValueError as e:
        raise ClientError(f"the state in group {job.group!r} is damaged") from e


def _created_anew(topic: str) -> ClientError:
    return ClientError(
        f"topic {topic!r} was created anew at the source; delete the copy, or use another name"
    )


async def _check_other(
    source: MetadataResponse, target: ClientCluster, names: Mapping[str, str]
) -> None:
    """A topic is not its own copy: that would grow for ever. Addresses can be spelled in many ways.

    A cluster that was restored elsewhere has the same id.
    """
    same = next((name for name, its_copy in names.items() if name == its_copy), None)
    if same is None:
        return
    there = await target.metadata([])
    one, other = ({(each.host, each.port) for each in side.brokers} for side in (source, there))
    if source.cluster_id == there.cluster_id and not one.isdisjoint(other):
        raise ClientError(f"source and target are the same cluster, so {same!r} is its own copy")


async def _check_empty(
    target: ClientCluster,
    copies: Mapping[str, MetadataResponseTopic],
    new: Sequence[CopiedPartition],
) -> None:
    """A copy begins empty: otherwise a job that lost its state would copy everything twice."""
    named = [copies[name] for name in dict.fromkeys(each.target[0] for each in new)]
    starts = await offsets.list_offsets_of(target, named, offsets.START)
    ends = await offsets.list_offsets_of(target, named, offsets.END)
    for each in new:
        if ends[each.target] > starts[each.target]:
            topic, number = each.target
            raise ClientError(
                f"partition {number} of {topic!r} at the target has records that this job did not "
                "write; name another topic, or use --append"
            )


# --- topics of the target -----------------------------------------------------------------------


async def _copies(
    job: Job,
    source: ClientCluster,
    target: ClientCluster,
    found: Mapping[str, MetadataResponseTopic],
    names: Mapping[str, str],
) -> dict[str, MetadataResponseTopic]:
    """The copies, by name, with at least as many partitions as their sources."""
    there = {
        topic.name or "": topic
        for topic in (await target.metadata(list(names.values()))).topics
        if not topic.error_code
    }
    missing = [name for name in found if names[name] not in there]
    own = await _own_configs(source, missing) if job.with_configs else {}
    changed: dict[str, int] = {}
    for name, topic in found.items():
        count, its_copy = len(topic.partitions), there.get(names[name])
        if its_copy is None:
            await _create(target, names[name], count, own.get(name, {}))
        elif len(its_copy.partitions) < count:
            await topics.add_partitions(target, names[name], count, validate_only=False)
        else:
            continue
        changed[names[name]] = count
    for name, count in changed.items():
        there[name] = await topics.led(target, name, count)
    return there


async def _create(
    target: ClientCluster, name: str, partitions: int, values: Mapping[str, str]
) -> None:
    result = await topics.create(target, name, partitions, -1, values, validate_only=False)
    if result.error_code and result.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
        why = about(f"topic {name!r}", sentence(result.error_code, result.error_message))
        if result.error_code == ErrorCode.INVALID_CONFIG:
            why += " (--no-configs leaves the configs out)"
        raise RequestRefusedError(result.error_code, why)


async def _own_configs(source: ClientCluster, names: Iterable[str]) -> dict[str, dict[str, str]]:
    """The configs that topics set themselves, except those that fit the source's brokers only."""
    every = list(names)
    found: dict[str, dict[str, str]] = {}
    for at in range(0, len(every), _AT_ONCE):
        some = every[at : at + _AT_ONCE]
        for name, its in (await configs.describe(source, ConfigResourceKind.TOPIC, some)).items():
            found[name] = {
                each.name: each.value
                for each in its
                if each.source == "topic" and each.value is not None and not each.read_only
                if each.name not in NOT_COPIED and not each.name.startswith("quafka.")
            }
    return found
