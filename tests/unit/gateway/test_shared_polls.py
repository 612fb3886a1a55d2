"""Which fetches share an op in flight, which answers serve them, and when the op is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from quafka_gateway.fetch.broker_fetch import BrokerFetch
from quafka_gateway.fetch.cache import FetchCache
from quafka_gateway.fetch.cached_partition import CachedPartition
from quafka_gateway.fetch.lease import ReadLease
from quafka_gateway.fetch.produce_acks import ProduceAcks
from quafka_gateway.fetch.shared_polls import SharedPolls
from quafka_gateway.memory import ResponseMemory
from quafka_loop import wakeups
from quafka_loop.eager_task import DirectFuture, EagerTask
from quafka_mesh_ops.ops.leases import HoldLease, HoldLeaseResp
from quafka_mesh_ops.ops.records import FetchOp, FetchOpResp, FetchOps, FetchOpsResp
from quafka_proto.errors import ErrorCode
from quafka_proto.record_codec import Record, build_batch
from quafka_telemetry.tracing import TraceContext, Tracer

ID = b"t" * 16
LONG = 60_000
POLL = FetchOps([FetchOp("", 0, 5, 1 << 20, ID)], LONG, 1, 1 << 20)
BATCH = bytes(build_batch([Record(0, 0, None, b"v", [])]))


def answer_of(end: int = 6, error: int = 0, *, leased: bool = True) -> FetchOpsResp:
    """With a record, up to a high watermark of `end`."""
    part = FetchOpResp([BATCH], high_watermark=end, last_stable_offset=end, error_code=error)
    return FetchOpsResp([part], leased=leased)


EMPTY = FetchOpsResp([FetchOpResp([], high_watermark=5, last_stable_offset=5)], leased=True)


class Shared:
    """Polls in front of a broker whose answers the test gives."""

    def __init__(self) -> None:
        self.asked: list[tuple[FetchOps, asyncio.Future[FetchOpsResp]]] = []
        self.leases: asyncio.Queue[HoldLeaseResp] = asyncio.Queue()
        self.cache, self.acks = FetchCache(1 << 20), ProduceAcks()
        self.now = 0.0
        self.direct = False
        """Whether an answer continues the poll within the call that gives it."""
        self.at_once: FetchOpsResp | None = None
        """The broker's answer, if it needs no wait."""
        self.lease = ReadLease(self, self.cache, lambda: self.now)
        memory = ResponseMemory(1 << 30).of(1)
        broker = BrokerFetch(self, memory, self.cache, self.lease, self.acks)
        self.polls = SharedPolls(broker, Tracer())

    async def fetch(self, op: FetchOps, trace: TraceContext | None) -> FetchOpsResp:
        if self.at_once is not None:
            return self.at_once
        future = DirectFuture[FetchOpsResp] if self.direct else asyncio.Future[FetchOpsResp]
        answer: asyncio.Future[FetchOpsResp] = future()
        self.asked.append((op, answer))
        return await answer

    async def hold_lease(self, op: HoldLease) -> HoldLeaseResp:
        return await self.leases.get()

    async def grant(self, *, forget: bool = False) -> None:
        """Answer the lease's op."""
        generation = self.lease.generation
        self.leases.put_nowait(HoldLeaseResp(b"r" * 16, 0, 1_000, forget, []))
        self.lease.use()
        while self.lease.generation == generation:
            await asyncio.sleep(0.01)

    async def poll(
        self, op: FetchOps = POLL, known: CachedPartition | None = None
    ) -> asyncio.Task[FetchOpsResp]:
        """Begin a fetch, and let it reach the broker or join."""
        task = asyncio.create_task(self.polls.fetch(op, [known], None))
        for _ in range(3):
            await asyncio.sleep(0)
        return task

    def answer(self, number: int, answer: FetchOpsResp) -> None:
        self.asked[number][1].set_result(answer)


@pytest.fixture
async def shared() -> AsyncIterator[Shared]:
    """With a valid lease."""
    made = Shared()
    await made.grant()
    yield made
    await made.lease.close()


async def test_identical_fetches_share_one_op(shared: Shared) -> None:
    waiting = [await shared.poll() for _ in range(5)]
    assert [op for op, _ in shared.asked] == [POLL]
    shared.answer(0, answer_of())
    assert await asyncio.gather(*waiting) == [answer_of()] * 5


@pytest.mark.parametrize(
    "other",
    [
        replace(POLL, partitions=[FetchOp("", 0, 6, 1 << 20, ID)]),
        replace(POLL, min_bytes=2),
        replace(POLL, max_bytes=1),
        replace(POLL, isolation_level=1),
    ],
)
async def test_other_fetches_have_an_op_of_their_own(shared: Shared, other: FetchOps) -> None:
    waiting = [await shared.poll(), await shared.poll(other)]
    assert [op for op, _ in shared.asked] == [POLL, other]
    shared.answer(0, answer_of(6))
    shared.answer(1, answer_of(7))
    assert await asyncio.gather(*waiting) == [answer_of(6), answer_of(7)]


async def test_without_a_lease_nothing_is_shared(shared: Shared) -> None:
    shared.now += 1.0
    waiting = [await shared.poll() for _ in range(2)]
    assert len(shared.asked) == 2
    for number in range(2):
        shared.answer(number, answer_of())
    await asyncio.gather(*waiting)


async def test_an_op_of_an_earlier_generation_is_not_joined(shared: Shared) -> None:
    early = await shared.poll()
    await shared.grant(forget=True)
    late = await shared.poll()
    later = await shared.poll()
    assert len(shared.asked) == 2
    shared.answer(1, answer_of(7))
    assert list(await asyncio.gather(late, later)) == [answer_of(7)] * 2
    assert not early.done()
    shared.answer(0, answer_of(6))
    assert await early == answer_of(6)


@pytest.mark.parametrize(
    "bad", [answer_of(error=ErrorCode.CORRUPT_MESSAGE), answer_of(leased=False)]
)
async def test_errors_and_unleased_answers_serve_one_fetch(
    shared: Shared, bad: FetchOpsResp
) -> None:
    waiting = [await shared.poll() for _ in range(2)]
    shared.answer(0, bad)
    assert await waiting[0] == bad
    while len(shared.asked) < 2:
        await asyncio.sleep(0)
    assert not waiting[1].done()
    shared.answer(1, answer_of())
    assert await waiting[1] == answer_of()


@pytest.mark.parametrize(("end", "serves"), [(6, False), (7, True)])
async def test_an_answer_must_show_what_was_acknowledged_before_the_fetch(
    shared: Shared, end: int, serves: bool
) -> None:
    shared.cache.store(POLL.partitions[0], FetchOpResp([], 5, 0, 0, 5), 0.0, includes_acks=0)
    known = shared.cache.find(POLL.partitions[0])
    assert known is not None
    first = await shared.poll(known=known)
    shared.acks.record(ID, 0)
    known.raise_watermarks(7, 7)
    known.includes_acks = shared.acks.now
    joined = await shared.poll(known=known)
    assert len(shared.asked) == 1
    shared.answer(0, answer_of(end))
    assert await first == answer_of(end)
    for _ in range(3):
        await asyncio.sleep(0)
    assert joined.done() == serves
    if not serves:
        shared.answer(1, answer_of(8))
        assert await joined == answer_of(8)


async def test_an_unknown_acknowledgement_is_shown_by_no_answer_in_flight(shared: Shared) -> None:
    first = await shared.poll()
    shared.acks.record(ID, 0)
    joined = await shared.poll(known=None)
    shared.answer(0, answer_of(1_000))
    await first
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(shared.asked) == 2
    shared.answer(1, answer_of(8))
    assert await joined == answer_of(8)


async def test_an_empty_answer_before_the_end_of_the_wait_serves_its_own_fetch_only(
    shared: Shared,
) -> None:
    first, joined = await shared.poll(), await shared.poll()
    shared.answer(0, EMPTY)  # as of a broker that drains
    assert await first == EMPTY
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(shared.asked) == 2
    shared.answer(1, answer_of())
    assert await joined == answer_of()


async def test_an_empty_answer_at_the_end_serves_all_that_waited_to_their_own_ends(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now)
    short = replace(POLL, max_wait_ms=30)
    first = await shared.poll(short)
    now += 0.010
    joined = await shared.poll(short)
    now += 0.025
    shared.answer(0, EMPTY)
    assert await first == EMPTY
    while len(shared.asked) < 2:
        await asyncio.sleep(0)
    assert not joined.done(), "its own wait is not over"
    now += 0.010
    assert await joined == EMPTY
    assert [op.max_wait_ms for op, _ in shared.asked] == [30, 26], "both with a long wait"


async def test_a_fetch_whose_time_is_up_asks_without_a_wait(shared: Shared) -> None:
    first = await shared.poll()
    joined = await shared.poll(replace(POLL, max_wait_ms=5))
    while len(shared.asked) < 2:
        await asyncio.sleep(0.001)
    assert shared.asked[1][0].max_wait_ms == 0
    shared.answer(1, EMPTY)
    assert await joined == EMPTY
    assert not first.done()
    shared.answer(0, answer_of())
    await first


async def test_fetches_stay_parked_while_the_op_is_sent_again(shared: Shared) -> None:
    loop = asyncio.get_running_loop()
    short = replace(POLL, max_wait_ms=20)
    first = await shared.poll(short)
    joined = [await shared.poll() for _ in range(3)]  # equal but for a long wait
    for number in range(3):
        sent = loop.time()
        while loop.time() < sent + 0.021:
            await asyncio.sleep(0.005)
        shared.answer(number, EMPTY)
        await asyncio.sleep(0)
        assert len(shared.asked) == number + 2
    assert await first == EMPTY
    assert not any(task.done() for task in joined)
    shared.answer(3, answer_of())
    assert await asyncio.gather(*joined) == [answer_of()] * 3
    assert len(shared.asked) == 4


async def test_a_fetch_whose_time_is_up_waits_for_an_answer_under_way(shared: Shared) -> None:
    short = replace(POLL, max_wait_ms=10)
    first, joined = await shared.poll(short), await shared.poll(short)
    await asyncio.sleep(0.05)  # both waits are over, at the broker, too
    assert len(shared.asked) == 1
    shared.answer(0, EMPTY)
    assert await first == EMPTY
    assert await joined == EMPTY
    assert len(shared.asked) == 1


async def test_a_fetch_that_arrived_after_the_end_of_the_wait_asks_itself(shared: Shared) -> None:
    first = await shared.poll(replace(POLL, max_wait_ms=5))
    await asyncio.sleep(0.01)
    late = await shared.poll(replace(POLL, max_wait_ms=5))
    await asyncio.sleep(0.03)
    shared.answer(0, EMPTY)
    assert await first == EMPTY
    await asyncio.sleep(0)
    assert shared.asked[1][0].max_wait_ms == 0
    shared.answer(1, answer_of())
    assert await late == answer_of()


async def test_an_op_is_not_sent_again_for_nobody(shared: Shared) -> None:
    first = await shared.poll(replace(POLL, max_wait_ms=1))
    await asyncio.sleep(0.002)
    shared.answer(0, EMPTY)
    assert await first == EMPTY
    assert len(shared.asked) == 1


async def test_an_op_is_not_sent_again_without_a_lease(shared: Shared) -> None:
    first = await shared.poll(replace(POLL, max_wait_ms=1))
    joined = await shared.poll()
    await asyncio.sleep(0.002)
    shared.now += 1.0
    shared.answer(0, EMPTY)
    assert await first == EMPTY
    await asyncio.sleep(0)
    left = shared.asked[1][0].max_wait_ms
    assert LONG - 1_000 < left < LONG, "an op of its own, with the rest of its wait"
    shared.answer(1, answer_of())
    assert await joined == answer_of()


async def test_fetches_of_an_earlier_generation_join_the_later_op(shared: Shared) -> None:
    first = await shared.poll(replace(POLL, max_wait_ms=1))
    early = await shared.poll()
    await shared.grant(forget=True)
    late = await shared.poll()
    assert len(shared.asked) == 2
    await asyncio.sleep(0.002)
    shared.answer(0, EMPTY)
    assert await first == EMPTY
    assert not early.done()
    late.cancel()
    await asyncio.gather(late, return_exceptions=True)
    assert not shared.asked[1][1].cancelled(), "the early fetch waits for it"
    shared.answer(1, answer_of(7))
    assert await early == answer_of(7)
    assert len(shared.asked) == 2


async def test_an_answer_continues_all_fetches_in_the_same_call(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "SLICE_SECONDS", 60)  # however slow the machine is
    shared.direct = True
    waiting = [EagerTask(shared.polls.fetch(POLL, [None], None)) for _ in range(5)]
    assert len(shared.asked) == 1
    shared.answer(0, answer_of())
    assert [task.result() for task in waiting] == [answer_of()] * 5


async def test_an_answer_within_the_call_that_asks(shared: Shared) -> None:
    shared.at_once = answer_of()
    assert EagerTask(shared.polls.fetch(POLL, [None], None)).result() == answer_of()
    shared.at_once = None
    again = await shared.poll()
    assert len(shared.asked) == 1, "nothing of the first is left"
    shared.answer(0, answer_of())
    await again


async def test_a_bug_fails_every_fetch_that_waits(shared: Shared) -> None:
    waiting = [await shared.poll() for _ in range(2)]
    shared.asked[0][1].set_exception(ZeroDivisionError())
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(result) for result in results] == [ZeroDivisionError] * 2


async def test_a_fetch_that_is_cancelled_in_the_turn_of_its_answer(shared: Shared) -> None:
    waiting = [await shared.poll() for _ in range(3)]
    shared.answer(0, answer_of())
    waiting[1].cancel()
    assert await waiting[0] == answer_of()
    assert await waiting[2] == answer_of()
    assert len(shared.asked) == 1


async def test_the_op_is_cancelled_with_the_last_fetch_that_waits(shared: Shared) -> None:
    first, second = await shared.poll(), await shared.poll()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert not shared.asked[0][1].cancelled()
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    await asyncio.sleep(0)
    assert shared.asked[0][1].cancelled()
    third = await shared.poll()
    assert len(shared.asked) == 2
    shared.answer(1, answer_of())
    assert await third == answer_of()
