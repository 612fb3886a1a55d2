"""Pins: the files of a cut of the log, held for as long as a snapshot is made of them.

A pin is a folder `pins/<name>` in the broker's data folder: hard links to the segments' files, and
`pin.json`, written last, which says what the cut is. Whatever the broker frees or writes anew
meanwhile, the pin has the old files: a sealed file is never changed in place, and what is
appended to the active one lies behind the cut. A pin needs no memory of the broker, so it outlives
restarts. (It need not outlive a power cut: neither do its readers.)

A pin has an owner, who is in its name: this machine, or a node. An owner may have so many. Pins
end by themselves:

- A local one that nobody holds is removed: the command that makes a snapshot locks `pin.json`.
- One that is read over the mesh has a lease, which each read renews.
- None lives longer than `snapshot.pin.max.ms`.

The names: `local-<random>`, and `remote-<node id>-<org>-<random>`, where org 0 stands for the whole
log. (`remote-<random>` is what older versions made.)
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import re
import shutil
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from quafka_broker.config import BrokerConfig
from quafka_broker.groups.table import Committed, Key, Place
from quafka_broker.partitions.partition import PartitionId, topic_hash
from quafka_broker.snapshots.zones_ahead import ZONES, zones_name
from quafka_broker.state import BrokerState
from quafka_broker.topics.registry import Topic as RegisteredTopic
from quafka_broker.wal.log import LogCut, SegmentCut
from quafka_broker.wal.segment import index_name, log_name
from quafka_mesh_ops.identity import NodeId
from quafka_proto.snapshot_format import (
    CommittedOffset,
    Group,
    Manifest,
    Partition,
    Topic,
    decode_manifest,
    encode_manifest,
)

log = logging.getLogger("quafka.broker.snapshots")

PINS = "pins"
WHOLE_LOG = 0
_GRACE_SECONDS = 60.0  # from a pin's birth until its maker must have locked it
_PIN = "pin.json"
_LOCAL, _REMOTE = "local-", "remote-"
_NAME = re.compile(r"remote-(?:([0-9a-f]{64})-([0-9]{1,10})-)?[0-9a-f]{16}")


class TooManyPinsError(OSError):
    """The owner has as many pins as it may."""


class Limits(NamedTuple):
    """How many pins an owner may have, and for how many seconds: unread, and in all."""

    pins: int
    lease: float
    lifetime: float

    @classmethod
    def of(cls, config: BrokerConfig) -> Limits:
        """Those of the settings."""
        return cls(
            config.snapshot_pins_max,
            config.snapshot_pin_lease_ms / 1000,
            config.snapshot_pin_max_ms / 1000,
        )


class Cut(NamedTuple):
    """What the manifest will say, still without pieces, and the segments to take them from."""

    manifest: Manifest
    segments: list[SegmentCut]


class _Seen(NamedTuple):
    """What the broker knows at the instant of a cut, beside the log."""

    cut_ms: int
    cluster_id: str
    producer_ids_up_to: int
    evicted: list[tuple[int, int]]
    topics: list[RegisteredTopic]
    offsets: list[tuple[Key, list[tuple[Place, Committed]]]]


async def pin(
    state: BrokerState,
    data: Path,
    *,
    local: bool,
    owner: NodeId = "",
    org: int = WHOLE_LOG,
) -> str:
    """Take a cut, which is durable, and hold its files; returns the pin's name.

    The event loop is held up only for as long as it takes to list partitions and offsets. Of an
    `org` the pin lists only its topics and groups; it holds the log's files all the same.

    Raises:
        TooManyPinsError: the owner has as many as it may.
        OSError: the files cannot be linked to, or the log has failed.
    """
    limits = Limits.of(state.config)
    prefix = _LOCAL if local else _prefix(owner)
    whose = f"{org}-" if prefix not in (_LOCAL, _REMOTE) else ""
    name = f"{prefix}{whose}{os.urandom(8).hex()}"
    await asyncio.to_thread(_check_room, data, prefix, limits)  # before the cut costs anything

    def see() -> _Seen:
        registry = state.registry
        return _Seen(
            time.time_ns() // 1_000_000,
            registry.cluster_id,
            registry.producer_ids_up_to,
            state.producers.dump_evicted(),
            registry.every_topic(),
            state.groups.every_offset(),
        )

    def keep(cut: LogCut, seen: _Seen) -> None:
        _check_room(data, prefix, limits)
        _hold(data, name, Cut(_manifest(cut, seen, org), cut.segments))

    await state.log.cut(see, keep)
    return name


def _prefix(owner: NodeId) -> str:
    return f"{_REMOTE}{owner}-" if owner else _REMOTE


def owner_of(name: str) -> tuple[NodeId, int] | None:
    """The node that owns a remote pin, and its org; None: this is no name of one.

    The owner of a pin of an older version is empty.
    """
    found = _NAME.fullmatch(name)
    return None if found is None else (found[1] or "", int(found[2] or WHOLE_LOG))


def _check_room(data: Path, prefix: str, limits: Limits) -> None:
    """Raise TooManyPinsError where the owner with this prefix may have no more.

    A local pin that nobody holds does not count: commands that are killed leave some, for a moment.
    """
    sweep(data, limits)
    if not (data / PINS).is_dir():
        return
    its = [folder for folder in (data / PINS).iterdir() if folder.name.startswith(prefix)]
    if sum(prefix != _LOCAL or _is_held(folder) for folder in its) >= limits.pins:
        raise TooManyPinsError(f"there are {limits.pins} pins (snapshot.pins.max)")


def _manifest(cut: LogCut, seen: _Seen, org: int) -> Manifest:
    ends = {id_: (log_start, end) for id_, log_start, end in cut.partitions}
    return Manifest(
        id="",
        cut_ms=seen.cut_ms,
        cluster_id=seen.cluster_id,
        end_id=cut.end_id,
        org=None,
        lease_until_ms=None,
        pieces=[],
        topics=[
            _topic(topic, ends, cut.lost) for topic in seen.topics if org in (WHOLE_LOG, topic.org)
        ],
        groups=[
            _group(key, offsets) for key, offsets in seen.offsets if org in (WHOLE_LOG, key[0])
        ],
        producer_ids_up_to=seen.producer_ids_up_to,
        evicted=[[number, below] for number, below in seen.evicted],
    )


def _topic(
    topic: RegisteredTopic,
    ends: dict[PartitionId, tuple[int, int]],
    lost: dict[PartitionId, list[tuple[int, int]]],
) -> Topic:
    partitions: list[Partition] = []
    for number in range(topic.partitions):
        id_ = topic.partition_id(number)
        start, end = ends.get(id_, (0, 0))
        ranges = [[first, last] for first, last in lost.get(id_, ())]
        partitions.append(Partition(number, start, end, end, ranges))
    hash_ = topic_hash(topic.org, topic.name).hex()
    return Topic(
        topic.org, topic.name, topic.uuid.hex(), hash_, topic.generation, partitions,
        dict(topic.configs), topic.ulid, topic.slug, topic.created_ms,
    )  # fmt: skip


def _group(key: Key, offsets: list[tuple[Place, Committed]]) -> Group:
    org, name = key
    return Group(
        org,
        name,
        [
            CommittedOffset(
                topic,
                partition,
                known.offset,
                known.leader_epoch,
                known.metadata,
                known.at_ms,
                known.incarnation if isinstance(known.incarnation, str) else "",
            )
            for (topic, partition), known in offsets
        ],
    )


# --- files ------------------------------------------------------------------------------------


def _hold(data: Path, name: str, cut: Cut) -> None:
    folder = folder_of(data, name)
    folder.mkdir(parents=True)
    try:
        for segment in cut.segments:
            for file in (log_name(segment.number), index_name(segment.number)):
                os.link(data / "wal" / file, folder / file)
            with suppress(FileNotFoundError):
                os.link(data / ZONES / zones_name(segment), folder / zones_name(segment))
        values = {
            "segments": [list(segment) for segment in cut.segments],
            "manifest": encode_manifest(cut.manifest).decode(),
        }
        with (folder / _PIN).open("x") as out:
            json.dump(values, out)
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def folder_of(data: Path, name: str) -> Path:
    """Where a pin's files are."""
    return data / PINS / name


def about(data: Path, name: str) -> bytes:
    """What a pin holds, for `cut_from`. Raises OSError: there is no such pin (any more)."""
    return (folder_of(data, name) / _PIN).read_bytes()


def cut_from(about: bytes) -> Cut:
    """The cut that a pin holds.

    Raises:
        Malformed: it was made by another version.
    """
    values = json.loads(about)
    segments = [SegmentCut(*segment) for segment in values["segments"]]
    return Cut(decode_manifest(values["manifest"].encode()), segments)


def read_pin(data: Path, name: str) -> Cut:
    """What a pin holds.

    Raises:
        OSError: there is no such pin (any more).
        Malformed: it was made by another version.
    """
    return cut_from(about(data, name))


@contextmanager
def held(data: Path, name: str) -> Generator[Path]:
    """Hold a local pin, and remove it in the end; gives its folder.

    Raises:
        OSError: there is no such pin (any more).
    """
    folder = folder_of(data, name)
    fd = os.open(folder / _PIN, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
        yield folder
    finally:
        unpin(data, name)
        os.close(fd)


def unpin(data: Path, name: str) -> None:
    """Let go of the files."""
    shutil.rmtree(folder_of(data, name), ignore_errors=True)


def renew(data: Path, name: str, limits: Limits) -> None:
    """Begin the lease of a remote pin anew.

    Raises:
        FileNotFoundError: it has ended.
        OSError: it cannot be renewed.
    """
    folder = folder_of(data, name)
    if not _is_needed(folder, limits):
        raise FileNotFoundError(f"the pin {name} has ended")
    os.utime(folder / _PIN)


def sweep(data: Path, limits: Limits) -> None:
    """Remove the pins that have ended."""
    if not (data / PINS).is_dir():
        return
    for folder in (data / PINS).iterdir():
        if not _is_needed(folder, limits):
            log.info("removing the pin %s, which has ended", folder.name)
            shutil.rmtree(folder, ignore_errors=True)


def _is_needed(folder: Path, limits: Limits) -> bool:
    if _age(folder) >= limits.lifetime:  # nothing is put into it later, so it is as old as the pin
        return False
    if not (folder / _PIN).exists():
        return _age(folder) < _GRACE_SECONDS  # being made, or never to be finished
    if not folder.name.startswith(_LOCAL):
        return _age(folder / _PIN) < limits.lease
    return _is_held(folder) or _age(folder / _PIN) < _GRACE_SECONDS


def _is_held(folder: Path) -> bool:
    """Whether a command has locked this local pin."""
    try:
        fd = os.open(folder / _PIN, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
