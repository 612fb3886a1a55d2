"""Checkpoint files: the state of the log up to a position. A start reads only the log after it.

File `checkpoint-<n>`: 12 bytes, b"QUAFKACP" and the version (4, big-endian), then blocks: length
(4) and CRC-32C (4) of a msgpack array whose first element is its kind.

    "begin"     next id when the checkpoint began
    "segment"   SegmentState; the last one was the active segment
    "damage"    Damage
    "epochs"    list of [leader epoch, first id in it]; not in checkpoints from before epochs
    "topics"    list of [id, covered, PartitionState, list of ProducerState], one a partition
    "evicted"   list of [org, id below which its evicted producers are]; not in older checkpoints
    "section"   name, and any values: state of a part of the broker above the log
    "end"       durable segment, durable position, end id, number of blocks before

A section's name ends with its version, as in "registry/1". Readers skip unknown blocks and
sections, so a new section needs no new version of the file.

A file without its "end", or with any other fault, is ignored. Two files are kept: the newest, and
the one before it, which is used if the newest is damaged or missing (docs/adr/0029).

A checkpoint is *fuzzy*: it is taken in slices while the log continues. Each partition, with its
producers, has the global id up to which it is covered; a start skips entries below that id. All
covered records are durable before the file gets its name.
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
from quafka_broker.partitions.producer_state import ProducerPartitionState
from quafka_broker.wal.disk import TEMPORARY, Disk, File
from quafka_broker.wal.quarantine import Lost, SegmentDamage
from quafka_broker.wal.segment import SegmentState
from quafka_proto.records import crc32c

log = logging.getLogger("quafka.broker.recovery")
msgpack: Any = untyped_msgpack

PREFIX = "checkpoint-"
_MAGIC = struct.pack(">8sI", b"QUAFKACP", 1)
_BLOCK = struct.Struct(">II")

Sections = Mapping[str, list[list[Any]]]
"""The values of each section's blocks, by name, in the order in which they were written."""


class SavedPartition(NamedTuple):
    """A partition and its producers, including every record with a global id below `covered`."""

    id: PartitionId
    covered: int
    state: PartitionState
    producers: list[ProducerPartitionState]


class Checkpoint(NamedTuple):
    """The content of a checkpoint file.

    Attributes:
        next_id: ids below it are covered in every partition.
        segments: oldest first; the last one may have grown beyond its `end`.
        durable: segment number and position up to which the log was fsynced.
        end_id: no partition in the checkpoint has this id or a higher one.
        epochs: leader epochs and the first id in each; None if the checkpoint has none.
        evicted: orgs with evicted producers, each with the id below which these are.
        sections: state of parts of the broker above the log.
    """

    next_id: int
    segments: list[SegmentState]
    damages: list[SegmentDamage]
    partitions: list[SavedPartition]
    durable: tuple[int, int]
    end_id: int
    epochs: list[tuple[int, int]] | None = None
    evicted: Sequence[tuple[int, int]] = ()
    sections: Sections = MappingProxyType({})


class CheckpointWriter:
    """Writes one checkpoint file, block by block. All methods block."""

    def __init__(self, disk: Disk, number: int) -> None:
        """Begin the file.

        Raises:
            OSError: the file cannot be written; `abandon` cleans up.
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
        damages: Iterable[SegmentDamage],
        epochs: list[tuple[int, int]],
    ) -> None:
        """Write the blocks before the partitions. Raises OSError."""
        blocks = [("begin", next_id)]
        self._write(_MAGIC, blocks)
        self._write(b"", [("segment", state) for state in segments])
        self._write(b"", [("damage", damage) for damage in damages])
        self._write(b"", [("epochs", epochs)])

    def partitions(self, packed: bytes) -> None:
        """Write some partitions, packed by `pack_partitions`. Raises OSError."""
        self._append([_framed(packed)])
        self._blocks += 1

    def section(self, name: str, values: Iterable[Any]) -> None:
        """Write one block of a section. Raises OSError."""
        self._write(b"", [("section", name, *values)])

    def finish(
        self,
        durable: tuple[int, int],
        end_id: int,
        evicted: list[tuple[int, int]],
        keep: int = 0,
    ) -> None:
        """Make this the newest checkpoint; remove all others but number `keep`. Raises OSError."""
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
        """Remove the unfinished file."""
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
    """Pack partitions for `CheckpointWriter.partitions`."""
    packed: bytes = msgpack.packb(("topics", partitions))
    return packed


def _framed(block: bytes) -> bytes:
    return _BLOCK.pack(len(block), crc32c(block)) + block


def _names(disk: Disk) -> list[str]:
    """The names of all checkpoint files, newest first."""
    return sorted(filter(is_checkpoint, disk.names()), key=number_of, reverse=True)


def is_checkpoint(name: str) -> bool:
    """Whether a file's name is that of a finished checkpoint."""
    return name.startswith(PREFIX) and name.removeprefix(PREFIX).isdecimal()


def number_of(name: str) -> int:
    """The number in a checkpoint's name."""
    return int(name.removeprefix(PREFIX))


class FoundCheckpoints(NamedTuple):
    """The checkpoints of a log.

    Attributes:
        newest: the number of the newest file; 0 if there is none.
        number: the number of the newest valid file; 0 if there is none.
        checkpoint: the content of that file.
        faults: the names of newer, invalid files, with the reasons.
    """

    newest: int
    number: int
    checkpoint: Checkpoint | None
    faults: dict[str, str]


def load_newest(disk: Disk) -> FoundCheckpoints:
    """Read the newest valid checkpoint.

    Raises:
        OSError: a file cannot be read.
    """
    names = _names(disk)
    newest = number_of(names[0]) if names else 0
    faults: dict[str, str] = {}
    for name in names:
        fault = _read(disk, name)
        if not isinstance(fault, str):
            return FoundCheckpoints(newest, number_of(name), fault, faults)
        faults[name] = fault
        log.warning("%s is not used: %s", name, fault)
    return FoundCheckpoints(newest, 0, None, faults)


def faults_of(disk: Disk) -> dict[str, str]:
    """The invalid checkpoint files, with the reasons.

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
    """A checkpoint, or the reason why its file is invalid."""
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
        ValueError: the file is invalid, or of another version.
    """
    found: dict[str, list[list[Any]]] = {}
    try:
        for number, (kind, *values) in enumerate(_blocks(file)):
            if kind == "end" and values[3] == number:
                return _checkpoint(found, values)
            found.setdefault(kind, []).append(values)
    except (TypeError, LookupError) as e:
        raise ValueError(f"it cannot be decoded: {e!r}") from e
    raise ValueError("it has no end")


def _checkpoint(found: Mapping[str, list[list[Any]]], end: list[Any]) -> Checkpoint:
    """Build a checkpoint from its blocks by kind, and its last block."""
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
        raise ValueError("it is not a checkpoint of a known version")
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


def _damage(values: list[Any]) -> SegmentDamage:
    *place, lost = values
    parts = tuple(Lost(PartitionId(*id_), first, end) for id_, first, end in lost)
    return SegmentDamage._make((*place, parts))


def _partition(values: list[Any]) -> SavedPartition:
    id_, covered, state, producers = values
    states = [
        ProducerPartitionState._make((*known, tuple(tuple(batch) for batch in batches)))
        for *known, batches in producers
    ]
    return SavedPartition(PartitionId(*id_), covered, PartitionState(*state), states)
