"""The end of a shard's log in an object store: its chain objects and their index rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass

from quafka_objects.store import ObjectInfo, ObjectStore
from quafka_proto.chain_format import (
    ENTRIES,
    HEADER_SIZE,
    ChainHeader,
    chain_folder,
    chain_path,
    decode_header,
    seq_of,
)
from quafka_proto.errors import Malformed
from quafka_proto.log_format import INDEX_ROW_SIZE

_WHOLE = 256 << 10
"""Objects up to this size are read by one request; of larger ones, only header and rows are read.
"""


@dataclass(frozen=True, slots=True)
class TailObject:
    """A chain object. `rows`: its index rows, none for a fence."""

    header: ChainHeader
    rows: bytes

    @property
    def path(self) -> str:
        """The object's path."""
        return chain_path(self.header.shard, self.header.seq)


class ChainGapError(Exception):
    """The first of the requested objects have been deleted."""


class ChainTail:
    """The objects of one shard's chain, each read once."""

    def __init__(self, store: ObjectStore, shard: int) -> None:
        self._store = store
        self._shard = shard
        self._known: dict[int, TailObject] = {}

    def read(
        self, start: int, first_needed: int, covered: Mapping[int, int], readers: Executor
    ) -> list[TailObject]:
        """The objects with entries from `start` to the first hole, without ignored ones.

        Args:
            first_needed: the manifest's `chain_start`, read before; objects from there on exist.
            covered: positions in segments up to which objects are skipped.

        Raises:
            ChainGapError: objects from `start` on have since been deleted.
            Malformed: an object is damaged.
        """
        listed = list(self._listed(start))
        if start + len(listed) < first_needed:
            raise ChainGapError(f"chain object {start + len(listed)} has been deleted")
        new = [info for info in listed if _seq(info) not in self._known]
        for tail in readers.map(self._read, new):
            self._known[tail.header.seq] = tail
        for seq in [seq for seq in self._known if seq < start]:
            del self._known[seq]
        chain = [self._known[_seq(info)] for info in listed]
        return [
            tail
            for tail in valid(chain)
            if tail.header.position >= covered.get(tail.header.segment, 0)
        ]

    def _listed(self, start: int) -> Iterator[ObjectInfo]:
        """The objects without a hole between them. (Fences of a trimmed chain come before.)"""
        after = chain_path(self._shard, start - 1) if start else ""
        expected = start
        for info in self._store.list_objects(chain_folder(self._shard), after):
            seq = seq_of(info.path)
            if seq is None:
                continue
            if seq != expected:
                return
            expected += 1
            yield info

    def _read(self, info: ObjectInfo) -> TailObject:
        path, seq = info.path, _seq(info)
        if info.size <= _WHOLE:
            return decode_tail(self._store.read(path), self._shard, seq)
        header = decode_header(self._store.read(path, 0, HEADER_SIZE), self._shard, seq)
        rows = self._store.read(path, header.rows_at, INDEX_ROW_SIZE * header.entries)
        return _checked(header, rows, info.size)


def decode_tail(data: bytes, shard: int, seq: int) -> TailObject:
    """The header and the rows of a whole object. Raises Malformed."""
    header = decode_header(data, shard, seq)
    return _checked(header, data[header.rows_at : header.size], len(data))


def valid(chain: Iterable[TailObject]) -> Iterator[TailObject]:
    """The objects with entries whose writers had not been fenced; see `chain_format`."""
    epoch = 0
    for tail in chain:
        if tail.header.epoch < epoch:
            continue
        epoch = tail.header.epoch
        if tail.header.kind == ENTRIES:
            yield tail


def _checked(header: ChainHeader, rows: bytes, size: int) -> TailObject:
    if size != header.size or len(rows) != INDEX_ROW_SIZE * header.entries:
        raise Malformed(f"chain object {header.seq} has {size} bytes in place of {header.size}")
    return TailObject(header, rows)


def _seq(info: ObjectInfo) -> int:
    seq = seq_of(info.path)
    assert seq is not None, "it is listed as a chain object"
    return seq
