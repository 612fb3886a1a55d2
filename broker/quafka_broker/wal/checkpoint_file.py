"""Checkpoints: what the log held up to some place, so that a start reads only what lies behind.

File `checkpoint-<n>`: 12 bytes, b"QUAFKACP" and the version (4, big-endian), then blocks: length
(4) and CRC-32C (4) of a msgpack array whose first element says what it is.

    "begin"     next id when it was begun
    "segment"   SegmentState; the last one was the active segment
    "damage"    Damage
    "epochs"    list of [leader epoch, first id in it]; not in checkpoints from before epochs
    "topics"    list of [id, covered, PartitionState, list of ProducerState]
    "evicted"   list of [org, id below which its evicted producers are]; not in older checkpoints
    "section"   name, and any values: what a part of the broker above the log keeps beside it
    "end"       durable segment, durable position, end id, number of blocks before

A section's name ends with its version, as in "registry/1". Readers skip blocks and sections that
they do not know, so a new section needs no new version of the file.

A file without its "end", or with any other fault, is as good as none. Two are kept: the newest,
and the one before it, which counts where the newest is damaged or missing (docs/adr/0029).

It is *fuzzy*: taken in slices while the log goes on. Each virtual topic, with its producers, says
up to which global id it is covered; a start skips what it finds below that. All that is covered is
durable before the file gets its name.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NamedTuple

import msgpack as untyped_msgpack  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]

from quafka_broker.partitions.partition import PartitionId, PartitionState
from quafka_broker.partitions.producers import ProducerState
from quafka_broker.wal.disk import TEMPORARY, Disk, File
from quafka_broker.wal.quarantine import Damage, Lost
from quafka_broker.wal.segment import SegmentState
from quafka_proto.records import crc32c

log = logging.getLogger("quafka.broker.recovery")
msgpack: Any = untyped_msgpack

PREFIX = "checkpoint-"
_MAGIC = struct.pack(">8sI", b"QUAFKACP", 1)
_BLOCK = struct.Struct(">II")

Sections = Mapping[str, list[list[Any]]]
"""By name: the values of each of a section's blocks, in the order in which they were written."""


class SavedPartition(NamedTuple):
    """A virtual topic and its producers, with every record whose global id is below `covered`."""

    id: PartitionId
    covered: int
    state: PartitionState
    producers: list[ProducerState]


class Checkpoint(NamedTuple):
    """All that a start needs to know.

    Attributes:
        next_id: ids below it are covered in every virtual topic.
        segments: oldest first; the last one goes on behind its `end`.
        durable: segment number and position up to where the log was fsynced.
        end_id: no virtual topic has an id from there on.
        epochs: leader epochs and the first id in each; None where the checkpoint has none.
        evicted: orgs that producers were evicted of, and below which id these are.
        sections: what parts of the broker above the log have kept in it.
    """

    next_id: int
    segments: list[SegmentState]
    damages: list[Damage]
    partitions: list[SavedPartition]
    durable: tuple[int, int]
    end_id: int
    epochs: list[tuple[int, int]] | None = None
    evicted: Sequence[tuple[int, int]] = ()
    sections: Sections = MappingProxyType({})


class CheckpointWriter:
    """Writes one checkpoint, piece by piece. Blocks."""

    def __init__(self, disk: Disk, number: int) -> None:
        """Begin the file.

        Raises:
            OSError: it cannot be written; `abandon` cleans up.
        """
        self._disk = disk
        self._name = f"{PREFIX}{number}"
        self._blocks = 0
        self._file: File | None = None
        if self._name + TEMPORARY in disk.names():
            disk.remove(self._name + TEMPORARY)
        self._file = disk.create(self._name + TEMPORARY)

    def begin(
        self,
        next_id: int,
        segments: Iterable[SegmentState],
        damages: Iterable[Damage],
        epochs: list[tuple[int, int]],
    ) -> None:
        """What is known before the virtual topics. Raises OSError."""
        blocks = [("begin", next_id)]
        self._write(_MAGIC, blocks)
        self._write(b"", [("segment", state) for state in segments])
        self._write(b"", [("damage", damage) for damage in damages])
        self._write(b"", [("epochs", epochs)])

    def partitions(self, packed: bytes) -> None:
        """Some virtual topics, as `pack_partitions` gave them. Raises OSError."""
        self._append([_framed(packed)])
        self._blocks += 1

    def section(self, name: str, values: Iterable[Any]) -> None:
        """One block of a section. Raises OSError."""
        self._write(b"", [("section", name, *values)])

    def finish(
        self,
        durable: tuple[int, int],
        end_id: int,
        evicted: list[tuple[int, int]],
        keep: int = 0,
    ) -> None:
        """Make it the one that counts; all others but number `keep` are removed. Raises OSError."""
        assert self._file is not None
        self._write(b"", [("evicted", evicted)])
        self._write(b"", [("end", *durable, end_id, self._blocks)])
        self._file.sync()
        self._file.close()
        self._file = None
        self._disk.rename(self._name + TEMPORARY, self._name)
        self._disk.sync_names()
        for name in _names(self._disk):
            if name not in (self._name, f"{PREFIX}{keep}"):
                self._disk.remove(name)

    def abandon(self) -> None:
        """It could not be written."""
        if self._file is not None:
            self._file.close()
            self._disk.remove(self._name + TEMPORARY)

    def _write(self, head: bytes, blocks: list[tuple[Any, ...]]) -> None:
        self._append([head, *(_framed(msgpack.packb(block)) for block in blocks)])
        self._blocks += len(blocks)

    def _append(self, buffers: list[bytes]) -> None:
        assert self._file is not None
        self._file.append(buffers)


def pack_partitions(partitions: list[SavedPartition]) -> bytes:
    """Virtual topics for `CheckpointWriter.topics`."""
    packed: bytes = msgpack.packb(("topics", partitions))
    return packed


def _framed(block: bytes) -> bytes:
    return _BLOCK.pack(len(block), crc32c(block)) + block


def _names(disk: Disk) -> list[str]:
    """The checkpoints that there are, newest first."""
    names = [name for name in disk.names() if name.removeprefix(PREFIX).isdecimal()]
    return sorted((n for n in names if n.startswith(PREFIX)), key=number_of, reverse=True)


def number_of(name: str) -> int:
    """The number in a checkpoint's name."""
    return int(name.removeprefix(PREFIX))


class Found(NamedTuple):
    """The checkpoints of a log.

    Attributes:
        newest: number of the newest file; 0 where there is none.
        number: of the newest whole one; 0 where there is none.
        checkpoint: what that one holds.
        faults: the names of newer files that are not whole, and why.
    """

    newest: int
    number: int
    checkpoint: Checkpoint | None
    faults: dict[str, str]


def load_newest(disk: Disk) -> Found:
    """Read the newest checkpoint that is whole.

    Raises:
        OSError: a file cannot be read.
    """
    names = _names(disk)
    newest = number_of(names[0]) if names else 0
    faults: dict[str, str] = {}
    for name in names:
        fault = _read(disk, name)
        if not isinstance(fault, str):
            return Found(newest, number_of(name), fault, faults)
        faults[name] = fault
        log.warning("%s is not used: %s", name, fault)
    return Found(newest, 0, None, faults)


def faults_of(disk: Disk) -> dict[str, str]:
    """The checkpoints that are not whole, and why.

    Raises:
        OSError: a file cannot be read.
    """
    faults: dict[str, str] = {}
    for name in _names(disk):
        with suppress(FileNotFoundError):  # a running broker removes them
            fault = _read(disk, name)
            if isinstance(fault, str):
                faults[name] = fault
    return faults


def _read(disk: Disk, name: str) -> Checkpoint | str:
    """A checkpoint, or why it is not whole."""
    file = disk.open(name)
    try:
        return read_checkpoint(file)
    except ValueError as e:
        return str(e)
    finally:
        file.close()


def read_checkpoint(file: File) -> Checkpoint:
    """Read and verify a checkpoint.

    Raises:
        ValueError: it is not whole, or not one of this version.
    """
    found: dict[str, list[list[Any]]] = {}
    try:
        for number, (kind, *values) in enumerate(_blocks(file)):
            if kind == "end" and values[3] == number:
                return _checkpoint(found, values)
            found.setdefault(kind, []).append(values)
    except (TypeError, LookupError) as e:
        raise ValueError(f"it cannot be understood: {e!r}") from e
    raise ValueError("it has no end")


def _checkpoint(found: Mapping[str, list[list[Any]]], end: list[Any]) -> Checkpoint:
    """Made of the blocks of each kind, and the last one."""
    *durable, end_id, _ = end
    sections: dict[str, list[list[Any]]] = {}
    for name, *values in found.get("section", ()):
        sections.setdefault(name, []).append(values)
    epochs = found.get("epochs")
    return Checkpoint(
        next_id=found["begin"][-1][0],
        segments=[SegmentState(*state) for (state,) in found.get("segment", ())],
        damages=[_damage(damage) for (damage,) in found.get("damage", ())],
        partitions=[_partition(saved) for (some,) in found.get("topics", ()) for saved in some],
        durable=(durable[0], durable[1]),
        end_id=end_id,
        epochs=None if epochs is None else [(epoch, first_id) for epoch, first_id in epochs[-1][0]],
        evicted=[(org, below) for (some,) in found.get("evicted", ()) for org, below in some],
        sections=sections,
    )


def _blocks(file: File) -> Iterator[list[Any]]:
    data = file.read(0, file.size())
    if not data.startswith(_MAGIC):
        raise ValueError("it is not a checkpoint of a version that is known")
    at = len(_MAGIC)
    while at < len(data):
        if len(data) - at < _BLOCK.size:
            raise ValueError("it is cut short")
        length, crc = _BLOCK.unpack_from(data, at)
        at += _BLOCK.size
        block = data[at : at + length]
        if len(block) < length or crc32c(block) != crc:
            raise ValueError("a block does not match its CRC")
        yield msgpack.unpackb(block)
        at += length


def _damage(values: list[Any]) -> Damage:
    *place, lost = values
    parts = tuple(Lost(PartitionId(*id_), first, end) for id_, first, end in lost)
    return Damage._make((*place, parts))


def _partition(values: list[Any]) -> SavedPartition:
    id_, covered, state, producers = values
    states = [
        ProducerState._make((*known, tuple(tuple(batch) for batch in batches)))
        for *known, batches in producers
    ]
    return SavedPartition(PartitionId(*id_), covered, PartitionState(*state), states)
