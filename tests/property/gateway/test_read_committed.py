"""Consumers of both isolation levels share a cache; each sees what its broker would show it.

A log of plain batches and of transactions, some aborted and some open, is stored piece by piece, as
a broker answers at some moment under either isolation level. A consumer that reads from the cache
filters as Kafka's clients do (KIP-98: by aborted list and control batches).
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from quafka_gateway.fetch.cache import FetchCache
from quafka_gateway.fetch.cache_lookup import look_up
from quafka_mesh_ops.ops.records import AbortedByOffset, FetchOp, FetchOpResp, FetchOps
from quafka_proto.record_codec import (
    MarkerType,
    Record,
    TransactionMarker,
    build_batch,
    build_marker,
    iter_records,
    read_marker,
)
from quafka_proto.records import CONTROL, TRANSACTIONAL, read_header

PARTITION = FetchOp("t", 0, 0, 0, b"i" * 16)
PRODUCERS = 2
ROOM = 1 << 20


class Event(NamedTuple):
    """A batch: data of a producer, plain (producer -1), or a marker."""

    producer: int
    kind: str
    records: int


@dataclass
class Log:
    """A partition's batches, and its transactions, as they were after each of the events."""

    batches: list[bytes] = field(default_factory=list[bytes])
    ends: list[int] = field(default_factory=lambda: [0])
    stable: list[int] = field(default_factory=lambda: [0])
    aborted: list[AbortedByOffset] = field(default_factory=list[AbortedByOffset])
    committed: dict[int, bool] = field(default_factory=dict[int, bool])
    """Of each data batch that is decided in the end, by base offset."""

    def __post_init__(self) -> None:
        self._open: dict[int, list[int]] = {}

    def append(self, event: Event) -> None:
        offset = self.ends[-1]
        producer = event.producer
        if event.kind in ("commit", "abort"):
            if producer not in self._open:
                return
            commits = event.kind == "commit"
            bases = self._open.pop(producer)
            for base in bases:
                self.committed[base] = commits
            if not commits:
                self.aborted.append(AbortedByOffset(producer, bases[0], offset))
            kind = MarkerType.COMMIT if commits else MarkerType.ABORT
            batch = build_marker(TransactionMarker(kind, 0), offset, 0, producer, 0)
            count = 1
        else:
            records = [Record(0, 0, None, b"%d" % offset, [])] * event.records
            transactional = producer >= 0
            batch = build_batch(
                records, 0, producer_id=producer, producer_epoch=0, transactional=transactional
            )
            if transactional:
                self._open.setdefault(producer, []).append(offset)
            else:
                self.committed[offset] = True
            count = event.records
        struct.pack_into(">q", batch, 0, offset)
        self.batches.append(bytes(batch))
        self.ends.append(offset + count)
        firsts = [bases[0] for bases in self._open.values()]
        self.stable.append(min(firsts, default=self.ends[-1]))

    def answer(self, first: int, count: int, moment: int, isolation_level: int) -> FetchOpResp:
        """A broker's answer after the first `moment` events, from batch `first` on."""
        high, stable = self.ends[moment], self.stable[moment]
        upto = stable if isolation_level else high
        batches = [
            batch
            for batch, end in list(zip(self.batches, self.ends[1:], strict=True))[:moment][first:]
            if end <= upto
        ][:count]
        begin = self.ends[first]
        end = self.ends[first + len(batches)]
        aborted = [
            each
            for each in self.aborted
            if each.last_offset < high and each.last_offset >= begin and each.first_offset < end
        ]
        return FetchOpResp(
            [*batches],
            high,
            0,
            0,
            stable,
            aborted if isolation_level else None,
            leader_epoch=0,
        )


def _consumed(batches: list[bytes], aborted: list[AbortedByOffset] | None) -> list[int]:
    """The base offsets of the data batches that a client shows to its application."""
    waiting = sorted(aborted or (), key=lambda each: each.first_offset)
    dropped: set[int] = set()
    shown: list[int] = []
    for batch in batches:
        header = read_header(batch)
        while waiting and waiting[0].first_offset <= header.last_offset:
            dropped.add(waiting.pop(0).producer_id)
        if header.attributes & CONTROL:
            (record,) = iter_records(batch)
            marker = read_marker(record)
            if marker is not None and marker.type == MarkerType.ABORT:
                dropped.discard(header.producer_id)
        elif not (header.attributes & TRANSACTIONAL and header.producer_id in dropped):
            shown.append(header.base_offset)
    return shown


seeds = st.integers(0, 1 << 32)
"""Of random logs: lists of Hypothesis have too few transactions of one producer in a row."""


def _events(chance: random.Random) -> list[Event]:
    kinds = ["data", "data", "commit", "abort"]
    return [
        Event(chance.randint(-1, PRODUCERS - 1), chance.choice(kinds), chance.randint(1, 3))
        for _ in range(40)
    ]


def _made(happened: list[Event]) -> Log:
    log = Log()
    for event in happened:
        log.append(event if event.producer >= 0 else event._replace(kind="data"))
    return log


@settings(deadline=None)
@given(seeds, st.integers(1_000, 4_000))
def test_a_consumer_sees_what_the_broker_would_show_it(seed: int, room: int) -> None:
    chance = random.Random(seed)
    log, cache, now = _made(_events(chance)), FetchCache(8 * room), 10
    for _ in range(15):
        now = min(len(log.batches), now + chance.randint(0, 8))
        first, count = chance.randrange(now), chance.randint(1, 20)
        answer = log.answer(first, count, now, chance.randint(0, 1))
        cache.store(replace(PARTITION, fetch_offset=log.ends[first]), answer, 0.0)
        partition = cache.find(PARTITION)
        assert partition is not None
        assert partition.undecided == sum(chunk.aborted is None for chunk in partition.chunks)
        for level in (0, 1):
            for offset in range(log.ends[now]):
                _check(log, cache, offset, level, room)


def _check(log: Log, cache: FetchCache, offset: int, level: int, room: int) -> None:
    wanted = FetchOp("t", 0, offset, room, PARTITION.topic_id)
    op = FetchOps([wanted], 0, 1, ROOM, level)
    (part,) = look_up(cache, op, ROOM, lambda _: True)
    if part.answer is None or not part.answer.records:
        return
    assert part.partition is not None
    assert part.end <= part.partition.readable_to(level)
    batches = [bytes(batch) for batch in part.answer.records]
    begin = read_header(batches[0]).base_offset
    assert begin <= offset < part.end
    shown = _consumed(batches, part.answer.aborted_transactions)
    bases = [b for b in log.ends[:-1] if begin <= b < part.end]
    data = [base for base in bases if not _is_control(log, base)]
    assert shown == (data if level == 0 else [base for base in data if log.committed[base]])


def _is_control(log: Log, base: int) -> bool:
    return bool(read_header(log.batches[log.ends.index(base)]).attributes & CONTROL)


@settings(deadline=None)
@given(seeds, st.integers(0, 1))
def test_an_answer_under_read_committed_decides_all_that_it_covers(
    seed: int, level_before: int
) -> None:
    log, cache = _made(_events(random.Random(seed))), FetchCache(ROOM)
    last = len(log.batches)
    for first in range(0, last, 4):
        op = replace(PARTITION, fetch_offset=log.ends[first])
        cache.store(op, log.answer(first, 3, last, level_before), 0.0)
    for first in range(1, last, 5):
        answer = log.answer(first, 5, last, 1)
        if not answer.records:
            continue
        cache.store(replace(PARTITION, fetch_offset=log.ends[first]), answer, 0.0)
        partition = cache.find(PARTITION)
        assert partition is not None
        begin, end = log.ends[first], read_header(answer.records[-1]).last_offset + 1
        covered = [each for each in partition.chunks if each.first < end and each.end > begin]
        assert covered
        assert all(each.aborted is not None for each in covered)


def test_an_aborted_transaction_before_the_fetch_offset_hides_nothing() -> None:
    """A later transaction of the same producer, in the same chunk, was committed."""
    log, cache = Log(), FetchCache(ROOM)
    for kind in ("data", "abort", "data", "commit"):
        log.append(Event(0, kind, 1))
    cache.store(PARTITION, log.answer(0, 4, 4, 1), 0.0)
    for offset in range(4):
        _check(log, cache, offset, 1, 4_000)
    wanted = FetchOp("t", 0, 2, 4_000, PARTITION.topic_id)
    (part,) = look_up(cache, FetchOps([wanted], 0, 1, ROOM, 1), ROOM, lambda _: True)
    assert part.answer is not None
    assert part.answer.aborted_transactions == []
    assert len(part.answer.records) == 2
