"""The counts of live records, which follow events, against a count of every id."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from quafka_broker.partitions.partition import Partition, PartitionId
from quafka_broker.wal.live_records import LiveRecords
from quafka_proto.log_format import IndexRow

IDS = [PartitionId(1, bytes(16), n, 0) for n in range(3)]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 2), st.integers(1, 5)),
        st.tuples(st.just("roll"), st.just(0), st.just(0)),
        st.tuples(st.just("advance"), st.integers(0, 2), st.integers(0, 100)),
        st.tuples(st.just("drop"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("restart"), st.just(0), st.just(0)),
        st.tuples(st.just("settle"), st.just(0), st.just(0)),
        st.tuples(st.just("count one"), st.just(0), st.just(0)),
    ),
    max_size=60,
)


class Model:
    """Partitions over segments, as the log has them; `live` receives the events."""

    def __init__(self) -> None:
        self.live = LiveRecords()
        self.partitions: dict[PartitionId, Partition] = {}
        self.segments: list[tuple[int, int]] = []  # number, first id
        self.next_id, self.number = 0, 0
        self.live.begin([], [], 0)

    def append(self, which: int, count: int) -> None:
        partition = self.partitions.setdefault(IDS[which], Partition(IDS[which]))
        if not self.segments or self.segments[-1][0] != self.number:
            self.segments.append((self.number, self.next_id))
        self.live.added(self.number, self.next_id, count)
        place = {"position": 0, "length": 61, "generation": 0, "max_timestamp": 0}
        producer = {"producer_id": -1, "base_sequence": -1, "producer_epoch": -1}
        partition.add(
            IndexRow(
                global_id=self.next_id,
                record_count=count,
                base_offset=partition.high_watermark,
                org_id=1,
                topic_hash=bytes(16),
                partition=which,
                **place,
                **producer,
            )
        )
        self.next_id += count

    def advance(self, which: int, percent: int) -> None:
        partition = self.partitions.get(IDS[which])
        if partition is None:
            return
        before, start = partition.ids, partition.log_start
        partition.advance_log_start(start + (partition.high_watermark - start) * percent // 100)
        if partition.ids is not before:
            first = partition.first_id
            self.live.died(partition.id, before, self.next_id if first is None else first)

    def drop(self, which: int) -> None:
        if partition := self.partitions.pop(IDS[which], None):
            self.live.dropped(partition)

    def restart(self) -> None:
        self.live = LiveRecords()
        self.live.begin(self.segments, self.partitions.values(), self.next_id)

    def brute_force(self) -> dict[int, int]:
        ends = [*[first for _, first in self.segments], self.next_id][1:]
        return {
            number: sum(
                first <= partition.global_id_at(offset) < end
                for partition in self.partitions.values()
                for offset in range(partition.log_start, partition.high_watermark)
            )
            for (number, first), end in zip(self.segments, ends, strict=True)
        }


async def play(steps: list[tuple[str, int, int]]) -> None:
    model = Model()
    for what, which, amount in steps:
        if what == "append":
            model.append(which, amount)
        elif what == "roll":
            model.number += 1
        elif what == "advance":
            model.advance(which, amount)
        elif what == "drop":
            model.drop(which)
        elif what == "restart":
            model.restart()
        elif what == "settle":
            await model.live.settle()
        else:
            model.live._step()
    await model.live.settle()
    found = {number: model.live.count(number) for number, _ in model.segments}
    assert found == model.brute_force()


@given(STEPS)
def test_counts_follow_appends_and_deletions(steps: list[tuple[str, int, int]]) -> None:
    asyncio.run(play(steps))
