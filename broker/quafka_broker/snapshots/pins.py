"""Pins: the files of a cut of the log, held for as long as a snapshot is made of them.

A pin is a folder `pins/<name>` in the broker's data folder: hard links to the segments' files, and
`pin.json`, written last, which says what the cut is. Whatever the broker frees or writes anew
meanwhile, the pin has the old files: a sealed file is never changed in place, and what is
appended to the active one lies behind the cut. It needs no memory of the broker, so it outlives
restarts. (A power cut it need not outlive: nor does who reads it, or his connection.)

Who makes a snapshot on the same machine holds a lock on `pin.json`: a pin that nobody holds is
removed. One that is read over the mesh has a lease, which each read renews.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from quafka_broker.groups.table import Committed, Key, Place
from quafka_broker.snapshots.zones_ahead import ZONES, zones_name
from quafka_broker.state import BrokerState
from quafka_broker.topics import Topic as RegisteredTopic
from quafka_broker.virtual_topics import VirtualTopicId, topic_hash
from quafka_broker.wal.log import LogCut, SegmentCut
from quafka_broker.wal.segment import index_name, log_name
from quafka_proto.snapshot_format import (
    CommittedOffset,
    Group,
    Manifest,
    Partition,
    Topic,
    decode_manifest,
    encode_manifest,
)

PINS = "pins"
LEASE_SECONDS = 600.0
_GRACE_SECONDS = 60.0  # from a pin's birth until its maker must have locked it
_PIN = "pin.json"
_LOCAL, _REMOTE = "local-", "remote-"


class Cut(NamedTuple):
    """What the manifest will say, still without pieces, and the segments to take them from."""

    manifest: Manifest
    segments: list[SegmentCut]


class _Seen(NamedTuple):
    """What the broker knows at the instant of a cut, beside the log."""

    cut_ms: int
    cluster_id: str
    topics: list[RegisteredTopic]
    offsets: list[tuple[Key, list[tuple[Place, Committed]]]]


async def pin(state: BrokerState, data: Path, *, local: bool) -> str:
    """Take a cut, which is durable, and hold its files; returns the pin's name.

    The event loop is held up only for as long as it takes to list partitions and offsets.

    Raises:
        OSError: the files cannot be linked to, or the log has failed.
    """
    name = (_LOCAL if local else _REMOTE) + os.urandom(8).hex()

    def see() -> _Seen:
        registry = state.registry
        return _Seen(
            time.time_ns() // 1_000_000,
            registry.cluster_id,
            registry.every_topic(),
            state.groups.every_offset(),
        )

    def keep(cut: LogCut, seen: _Seen) -> None:
        sweep(data)
        _hold(data, name, Cut(_manifest(cut, seen), cut.segments))

    await state.log.cut(see, keep)
    return name


def _manifest(cut: LogCut, seen: _Seen) -> Manifest:
    ends = {id_: (log_start, end) for id_, log_start, end in cut.topics}
    return Manifest(
        id="",
        cut_ms=seen.cut_ms,
        cluster_id=seen.cluster_id,
        end_id=cut.end_id,
        org=None,
        lease_until_ms=None,
        pieces=[],
        topics=[_topic(topic, ends, cut.lost) for topic in seen.topics],
        groups=[_group(key, offsets) for key, offsets in seen.offsets],
    )


def _topic(
    topic: RegisteredTopic,
    ends: dict[VirtualTopicId, tuple[int, int]],
    lost: dict[VirtualTopicId, list[tuple[int, int]]],
) -> Topic:
    partitions: list[Partition] = []
    for number in range(topic.partitions):
        id_ = topic.virtual(number)
        start, end = ends.get(id_, (0, 0))
        ranges = [[first, last] for first, last in lost.get(id_, ())]
        partitions.append(Partition(number, start, end, end, ranges))
    hash_ = topic_hash(topic.org, topic.name).hex()
    return Topic(
        topic.org, topic.name, topic.uuid.hex(), hash_, topic.generation, partitions,
        dict(topic.configs),
    )  # fmt: skip


def _group(key: Key, offsets: list[tuple[Place, Committed]]) -> Group:
    org, name = key
    return Group(
        org,
        name,
        [
            CommittedOffset(
                topic, partition, known.offset, known.leader_epoch, known.metadata, known.at_ms
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


def renew(data: Path, name: str) -> None:
    """Begin the lease of a pin anew.

    Raises:
        OSError: there is no such pin (any more).
    """
    os.utime(folder_of(data, name) / _PIN)


def sweep(data: Path) -> None:
    """Remove the pins that nobody needs any more."""
    if not (data / PINS).is_dir():
        return
    for folder in (data / PINS).iterdir():
        if not _is_needed(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _is_needed(folder: Path) -> bool:
    try:
        fd = os.open(folder / _PIN, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return _age(folder) < _GRACE_SECONDS  # being made, or never to be finished
    try:
        if not folder.name.startswith(_LOCAL):
            return _age(folder / _PIN) < LEASE_SECONDS
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return _age(folder / _PIN) < _GRACE_SECONDS


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
