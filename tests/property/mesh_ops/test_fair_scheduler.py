"""Whatever up to eight orgs send, an op of another org within its share soon begins.

The broker of this model does what the real one does with the ops of a gateway: it serves them in
the order in which they were sent; those with more work than a share in slices, orgs in turn.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quafka_mesh_ops.ops.base import AnyOp, OpKind
from quafka_mesh_ops.ops.probe import Probe
from quafka_mesh_ops.ops.records import ProduceOp, ProduceOps
from quafka_mesh_ops.scheduler import BOUNDS, LARGE, UNIT_SECONDS, Scheduler, work_of
from tests.support.suites import examples

INNOCENT = 9
SLICE = round(0.001 / UNIT_SECONDS)
"""Units of work between two turns of the broker's loop."""
MINE = {
    OpKind.SMALL_OPS: 300_000,
    OpKind.FETCHES: BOUNDS[OpKind.FETCHES].size // (INNOCENT + 1),
    OpKind.RECORDS: LARGE // 3,
    OpKind.GROUP_WAITS: BOUNDS[OpKind.GROUP_WAITS].size // (INNOCENT + 1),
}
"""Bytes of an op that is within the share of one of nine orgs."""
SOON = round(0.02 / UNIT_SECONDS)


@dataclass
class Arrival:
    """An op on its way, as a call.

    Attributes:
        at: units of work after the one before it.
        actual: how often its work is what it looks.
        waited: work that the broker has done for others since it came; -1 before.
    """

    kind: OpKind
    org_id: int
    size: int
    op: AnyOp
    at: int = 0
    actual: int = 1
    request_id: int = 0
    turn: int = 0
    left: int = 0
    waited: int = -1
    begun: bool = False


@dataclass
class Broker:
    """A gateway's schedulers, and the broker at the other end."""

    schedulers: dict[OpKind, Scheduler[Arrival]] = field(
        default_factory=lambda: {kind: Scheduler[Arrival](BOUNDS[kind]) for kind in OpKind}
    )
    short: deque[Arrival] = field(default_factory=deque[Arrival])
    long: OrderedDict[int, deque[Arrival]] = field(default_factory=OrderedDict[int, deque[Arrival]])
    innocent: list[Arrival] = field(default_factory=list[Arrival])

    def arrive(self, call: Arrival) -> None:
        """See MeshClient: send the op, or let it wait."""
        scheduler = self.schedulers[call.kind]
        if call.org_id == INNOCENT:
            self.innocent.append(call)
            call.waited = 0
        if scheduler.admits(call):
            self._send(call)
        elif displaced := scheduler.displaced_by(call):
            for each in displaced:
                assert each.org_id != INNOCENT
                scheduler.release(each)
            self._send(call)
        else:
            scheduler.wait(call)

    def _send_waiting(self, scheduler: Scheduler[Arrival]) -> None:
        while (found := scheduler.pop_next()) is not None:
            self._send(found)

    def _send(self, call: Arrival) -> None:
        bounds = BOUNDS[call.kind]
        self.schedulers[call.kind].reserve(call)
        if not bounds.share:
            call.begun = True  # it is parked for ever
            return
        call.left = (bounds.cost + work_of(call)) * call.actual
        if call.left <= bounds.share:
            self.short.append(call)
        else:
            self.long.setdefault(call.org_id, deque()).append(call)

    def work(self, units: int) -> None:
        """Serve ops for so long."""
        while units > 0 and (self.short or self.long):
            done = 0
            while self.short and done < SLICE:
                call = self.short.popleft()
                done += self._serve(call, call.left)
            if self.long:
                org, calls = self.long.popitem(last=False)
                done += self._serve(calls[0], min(SLICE, calls[0].left))
                if not calls[0].left:
                    calls.popleft()
                if calls:
                    self.long[org] = calls
            units -= done

    def _serve(self, call: Arrival, units: int) -> int:
        for each in self.innocent:
            if not each.begun and call.org_id != INNOCENT:
                each.waited += units
        call.begun = True
        call.left -= units
        if not call.left:
            scheduler = self.schedulers[call.kind]
            work = (BOUNDS[call.kind].cost + work_of(call)) * call.actual
            scheduler.release(call, work * UNIT_SECONDS if call.actual > 1 else 0.0)
            self._send_waiting(scheduler)
        return units


class Burst(NamedTuple):
    """Equal ops of a hostile org."""

    kind: OpKind
    org: int
    size: int
    parts: int
    at: int
    actual: int
    times: int

    def calls(self) -> Iterator[Arrival]:
        """Its ops."""
        op = ProduceOps([ProduceOp("t", 0, b"")] * self.parts)
        for _ in range(self.times):
            yield Arrival(self.kind, self.org, self.size, op, self.at, self.actual)


BURSTS = st.builds(
    Burst,
    kind=st.sampled_from(OpKind),
    org=st.integers(1, INNOCENT - 1),
    size=st.sampled_from((200, 20_000, LARGE, LARGE + 1, 9 << 20, 22 << 20, 47 << 20)),
    parts=st.sampled_from((1, 32)),
    at=st.sampled_from((0, 0, 10, 300)),
    actual=st.sampled_from((1, 1, 100)),
    times=st.integers(1, 60),
)
HOSTILE = st.lists(BURSTS, min_size=1, max_size=20)


@given(HOSTILE)
@examples(1_000)
def test_an_op_within_its_share_begins_within_20_ms_of_work(
    hostile: list[Burst],
) -> None:
    _play(hostile)


@pytest.mark.long
@given(HOSTILE)
@examples(10_000)
def test_it_does_so_after_any_of_many_arrivals(hostile: list[Burst]) -> None:
    _play(hostile)


def _play(hostile: list[Burst]) -> None:
    broker = Broker()
    for kind in (OpKind.SMALL_OPS, OpKind.RECORDS):  # orgs that were alone have more
        for org in (1, INNOCENT):
            broker.arrive(Arrival(kind, org, 100, Probe(), request_id=-1))
        broker.work(SOON)
    number = 0
    for burst in hostile:
        for call in burst.calls():
            number += 1
            call.request_id = number
            broker.arrive(call)
            broker.work(call.at)
        for kind in OpKind:
            number += 1
            mine = Arrival(kind, INNOCENT, MINE[kind], Probe(), request_id=number)
            broker.arrive(mine)
            if not BOUNDS[kind].share:
                assert mine.begun
                broker.schedulers[kind].release(mine)
        broker.work(3 * SOON)
    assert all(each.begun for each in broker.innocent)
    assert max(each.waited for each in broker.innocent) <= SOON
