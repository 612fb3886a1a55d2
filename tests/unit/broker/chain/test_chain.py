"""The chain of a shard in a folder; `tests/integration/kernel` has the same suite over S3."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from quafka_broker.chain.chain import Chain
from quafka_broker.chain.collect import Collector
from quafka_broker.chain.errors import FencedError
from quafka_broker.chain.objects import read_object, read_objects
from quafka_broker.chain.takeover import Taken, look, take_over
from quafka_loop import clock
from quafka_objects.address import open_store
from quafka_objects.asynchronous import AsyncObjectStore
from quafka_proto.chain_format import WINDOW, Owner, file_path
from quafka_proto.log_format import INDEX_ROW_SIZE
from quafka_telemetry import semconv
from quafka_telemetry.tracing import Steps, TraceContext
from tests.support.recorded_spans import RecordedSpans

SHARD = 3


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[AsyncObjectStore]:
    store = AsyncObjectStore(open_store(str(tmp_path)))
    yield store
    await store.close()


async def taken(store: AsyncObjectStore, node: str = "a") -> Taken:
    return await take_over(store, SHARD, Owner(node, f"{node}:9094"), clock.time)


class Appender:
    """Appends one entry of ten bytes after the other."""

    def __init__(self, chain: Chain, count: int = 0) -> None:
        self.chain, self.count = chain, count

    def append(self) -> asyncio.Future[None]:
        data, rows = b"%010d" % self.count, bytes(INDEX_ROW_SIZE)
        done = self.chain.append(0, 32 + 10 * self.count, self.count, 7, [data], rows, 1)
        self.count += 1
        return done


async def values(store: AsyncObjectStore, taken: Taken) -> list[int]:
    seqs = [seq for seq, _ in taken.objects]
    return [
        int(bytes(data[header.size - INDEX_ROW_SIZE - header.length : header.rows_at]))
        async for header, data in read_objects(store, SHARD, seqs)
    ]


async def test_appends_are_there_after_a_takeover(store: AsyncObjectStore) -> None:
    first = await taken(store)
    assert (first.before.epoch, first.chain.epoch, first.objects) == (0, 1, [])
    appender = Appender(first.chain)
    done: list[asyncio.Future[None]] = []
    for _ in range(3 * WINDOW):
        await first.chain.room()
        assert first.chain.in_flight < WINDOW
        done.append(appender.append())
    await asyncio.gather(*done)
    second = await taken(store, "b")
    assert await values(store, second) == list(range(3 * WINDOW))
    assert second.before.owner == Owner("a", "a:9094")


async def test_a_fenced_owner_acknowledges_nothing(store: AsyncObjectStore) -> None:
    first = await taken(store)
    reasons: list[str] = []
    first.chain.on_fenced = reasons.append
    appender = Appender(first.chain)
    await appender.append()
    second = await taken(store, "b")
    late = [appender.append() for _ in range(2 * WINDOW)]
    for done in late:
        with pytest.raises(FencedError):
            await done
    with pytest.raises(FencedError):
        await appender.append()
    with pytest.raises(FencedError):
        await first.chain.update(lambda now: replace(now, view="x"))
    await first.chain.room()
    await first.chain.drained()
    await asyncio.sleep(0)
    assert len(reasons) == 1
    await Appender(second.chain, 1).append()
    assert await values(store, await taken(store, "c")) == [0, 1]


async def test_an_idle_owner_learns_of_its_end_by_the_manifest(store: AsyncObjectStore) -> None:
    first = await taken(store)
    await first.chain.update(lambda now: replace(now, view="x"))
    await taken(store, "b")
    with pytest.raises(FencedError, match="b has taken over"):
        await first.chain.update(lambda now: replace(now, view="y"))
    assert first.chain.failure == "b has taken over the shard"


async def test_a_release(store: AsyncObjectStore) -> None:
    first = await taken(store)
    fenced: list[str] = []
    first.chain.on_fenced = fenced.append
    done = Appender(first.chain).append()
    await first.chain.release()
    assert done.done()
    with pytest.raises(FencedError, match="released"):
        await first.chain.update(lambda now: replace(now, view="x"))
    second = await taken(store, "b")
    assert second.before.owner is None
    assert await values(store, second) == [0]
    assert fenced == []


async def test_a_change_from_a_thread(store: AsyncObjectStore) -> None:
    chain = (await taken(store)).chain
    found = await asyncio.to_thread(chain.update_blocking, lambda now: replace(now, view="x"))
    assert found.view == "x"
    assert chain.manifest == found


async def test_of_racing_takeovers_one_is_the_owner(store: AsyncObjectStore) -> None:
    await taken(store)
    seen = await look(store, SHARD)

    async def race(node: str) -> Taken | None:
        try:
            return await take_over(store, SHARD, Owner(node, ""), clock.time, seen=seen)
        except FencedError:
            return None

    found = [each for each in await asyncio.gather(*map(race, "bcdef")) if each]
    assert len(found) == 1
    await Appender(found[0].chain).append()


async def test_an_object_is_read_whole(store: AsyncObjectStore) -> None:
    first = await taken(store)
    await Appender(first.chain).append()
    header, data = await read_object(store, SHARD, first.chain.next_seq - 1)
    assert (header.entries, header.salt, header.epoch) == (1, 7, 1)
    assert bytes(data[header.offset_of(32) :][:10]) == b"0000000000"


async def test_collection(store: AsyncObjectStore) -> None:
    chain = (await taken(store)).chain
    appender = Appender(chain)
    for _ in range(3):
        await appender.append()
    old = file_path(SHARD, "old", chain.epoch, 1)
    await store.put(old, b"x")
    start = chain.next_seq - 1
    await chain.update(lambda now: replace(now, chain_start=start))

    def kept() -> set[str]:
        return set()

    assert (await Collector(store, SHARD, chain.epoch, kept, grace_s=0).collect(0)).objects == 3
    assert not await store.exists(old)
    second = await taken(store, "b")
    assert await values(store, second) == [2]


async def test_the_round_trips_of_a_takeover_are_steps_of_its_trace(
    store: AsyncObjectStore,
) -> None:
    appender = Appender((await taken(store)).chain)
    await asyncio.gather(*(appender.append() for _ in range(3)))
    recorded = RecordedSpans()
    steps = Steps(recorded.tracer, TraceContext(1, 2))
    await take_over(store, SHARD, Owner("b", "b:9094"), clock.time, steps=steps)
    spans = {span.name: span for span in recorded.close()}
    assert spans.keys() == {
        semconv.SHARD_LIST,
        semconv.SHARD_READ_AHEAD,
        semconv.SHARD_CLAIM,
        semconv.SHARD_FENCE,
        semconv.SHARD_VERIFY,
    }
    assert {span.parent for span in spans.values()} == {steps.parent}
    read = spans[semconv.SHARD_READ_AHEAD].attributes
    assert read[semconv.STORE_OBJECTS] == 3 + WINDOW, "and the fences of the first takeover"
    assert int(read[semconv.STORE_BYTES]) > 30


async def test_a_takeover_that_comes_too_late_names_the_step_that_failed(
    store: AsyncObjectStore,
) -> None:
    seen = await look(store, SHARD)
    await taken(store)
    recorded = RecordedSpans()
    steps = Steps(recorded.tracer, TraceContext(1, 2))
    with pytest.raises(FencedError):
        await take_over(store, SHARD, Owner("b", ""), clock.time, seen=seen, steps=steps)
    assert {span.name: span.error for span in recorded.close()} == {
        semconv.SHARD_LIST: None,
        semconv.SHARD_READ_AHEAD: None,
        semconv.SHARD_CLAIM: "FencedError",
    }
