"""Races of takeovers, late requests and collection, each step by step."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from random import Random

import pytest

from quafka_broker.chain.chain import Chain
from quafka_broker.chain.collect import Collector
from quafka_broker.chain.errors import FencedError, StoreUnavailableError
from quafka_broker.chain.objects import fence_header, list_chain, read_headers, valid_objects
from quafka_broker.chain.takeover import Seen, Taken, look, take_over
from quafka_objects.errors import ObjectExistsError, ObjectNotFoundError, ObjectStoreError
from quafka_objects.store import Buffer, ETag, ObjectInfo
from quafka_proto.chain_format import (
    FENCE,
    WINDOW,
    Owner,
    ShardManifest,
    StoredFile,
    chain_path,
    directory_path,
    encode_directory,
    encode_header,
    file_path,
    manifest_path,
)
from quafka_proto.errors import Malformed
from quafka_proto.log_format import INDEX_ROW_SIZE
from quafka_proto.snapshot_format import SegmentPiece, SnapshotManifest, new_snapshot_id
from quafka_proto.view_format import View, encode_view, view_path
from tests.sim.shards import virtual_time
from tests.sim.shards.store import Objects, Process, SimulatedStore, Weather

SHARD = 0
ENTRY = b"\x07" * 10


class Store(SimulatedStore):
    """A store in good weather. Tests stop requests before they are sent, or change answers."""

    def __init__(self, objects: Objects) -> None:
        super().__init__(objects, Process("a broker"), Weather(), Random(1))
        self.objects = objects
        self.before_create: Callable[[str], Awaitable[None]] = _nothing
        self.after_create: Callable[[str], Awaitable[None]] = _nothing
        self.after_replace: Callable[[str], Awaitable[None]] = _nothing
        self.after_list: Callable[[str], Awaitable[None]] = _nothing
        self.lag: set[str] = set()

    async def create(self, path: str, data: Buffer) -> ETag:
        await self.before_create(path)
        etag = await super().create(path, data)
        await self.after_create(path)
        return etag

    async def replace(self, path: str, data: Buffer, expected: ETag) -> ETag:
        etag = await super().replace(path, data, expected)
        await self.after_replace(path)
        return etag

    async def list_objects(self, folder: str = "", after: str = "") -> Sequence[ObjectInfo]:
        found = await super().list_objects(folder, after)
        await self.after_list(folder)
        return [info for info in found if info.path not in self.lag]


async def _nothing(_: str) -> None:
    pass


class Once:
    """Does something at the first call for a path."""

    def __init__(self, path: str, run: Callable[[], Awaitable[object]]) -> None:
        self._path, self._run = path, run
        self.was_called = False

    async def __call__(self, path: str) -> None:
        if path == self._path and not self.was_called:
            self.was_called = True
            await self._run()


def failing(error: Exception) -> Callable[[], Awaitable[object]]:
    async def fail() -> None:
        raise error

    return fail


async def taken(objects: Objects, node: str = "a") -> Taken:
    return await take_over(Store(objects), SHARD, Owner(node, ""), lambda: 1e9)


def append(chain: Chain, at: int) -> asyncio.Future[None]:
    position = len(ENTRY) * at
    return chain.append(0, position, at, 7, [ENTRY], bytes(INDEX_ROW_SIZE), 1)


async def entries(objects: Objects, start: int = 0) -> list[int]:
    """The ids of the records that a reader finds."""
    store = Store(objects)
    seqs = [each.seq for each in await list_chain(store, SHARD, start)]
    return [each.first_id for each in valid_objects(await read_headers(store, SHARD, seqs))]


def at_virtual_time(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        async def main() -> None:
            await test()

        virtual_time.run(main())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


# --- lost and late answers --------------------------------------------------------------------


@at_virtual_time
async def test_a_lost_answer_is_settled_by_the_nonce() -> None:
    objects = Objects()
    chain = (await taken(objects)).chain
    store = Store(objects)
    chain._store = store
    store.after_create = Once(
        chain_path(SHARD, chain.next_seq), failing(ObjectStoreError("no answer"))
    )
    await append(chain, 0)
    assert await entries(objects) == [0]


@at_virtual_time
async def test_a_lost_answer_while_a_new_owner_fences() -> None:
    """The object is before the fence: it is acknowledged, and the new owner has it."""
    objects = Objects()
    chain = (await taken(objects)).chain
    store = Store(objects)
    chain._store = store
    found: list[Taken] = []

    async def overtake() -> None:
        found.append(await taken(objects, "b"))
        raise ObjectStoreError("no answer")

    store.after_create = Once(chain_path(SHARD, chain.next_seq), overtake)
    await append(chain, 0)
    with pytest.raises(FencedError, match="epoch 2"):
        await append(chain, 1)
    assert [header.first_id for _, header in found[0].objects] == [0]


@at_virtual_time
async def test_a_request_that_arrives_behind_the_fence() -> None:
    """A new owner has filled all places in which old objects may appear."""
    objects = Objects()
    chain = (await taken(objects)).chain
    store = Store(objects)
    chain._store = store
    found: list[Taken] = []

    async def overtake() -> None:
        found.append(await taken(objects, "b"))

    first = chain.next_seq
    store.before_create = Once(chain_path(SHARD, first), overtake)
    late = [append(chain, at) for at in range(2 * WINDOW)]
    for done in late:
        with pytest.raises(FencedError):
            await done
    new = found[0].chain
    assert new.next_seq == first + WINDOW
    left = await read_headers(store, SHARD, range(first, first + WINDOW))
    assert [each.epoch for each in left] == [2] + (WINDOW - 1) * [1], "a fence, and late objects"
    await append(new, 0)
    assert await entries(objects) == [0]


@at_virtual_time
async def test_an_answer_of_the_manifest_is_lost() -> None:
    objects = Objects()
    chain = (await taken(objects)).chain
    store = Store(objects)
    chain._store = store
    store.after_replace = Once(manifest_path(SHARD), failing(ObjectStoreError("no answer")))
    times = 0

    def change(now: ShardManifest) -> ShardManifest:
        nonlocal times
        times += 1
        return replace(now, chain_start=now.chain_start + 1)

    assert (await chain.update(change)).chain_start == 1
    assert times == 1
    assert chain.failure is None


@at_virtual_time
async def test_a_cancelled_change_of_the_manifest_arrives_late() -> None:
    objects = Objects()
    chain = (await taken(objects)).chain
    store = Store(objects)
    chain._store = store
    store.after_replace = Once(manifest_path(SHARD), lambda: asyncio.sleep(1e6))
    update = asyncio.ensure_future(chain.update(lambda now: replace(now, view="first")))
    await asyncio.sleep(1)
    update.cancel()
    found = await chain.update(lambda now: replace(now, directory="second"))
    assert (found.view, found.directory) == ("first", "second")


@at_virtual_time
async def test_a_false_refusal_is_tried_again() -> None:
    objects = Objects()
    chain = (await taken(objects)).chain
    store = Store(objects)
    chain._store = store
    store.before_create = Once(chain_path(SHARD, chain.next_seq), failing(ObjectExistsError("409")))
    await append(chain, 0)


@at_virtual_time
async def test_a_store_that_is_away() -> None:
    objects = Objects()
    chain = (await taken(objects)).chain
    weather = Weather(outage=True)
    chain._store = SimulatedStore(objects, Process("a"), weather, Random(1))
    done = [append(chain, at) for at in range(3)]
    await asyncio.sleep(300)
    assert not any(each.done() for each in done)
    trouble = [chain.trouble]
    weather.outage = False
    await asyncio.gather(*done)
    trouble.append(chain.trouble)
    assert [bool(each) for each in trouble] == [True, False]
    weather.outage = True
    with pytest.raises(StoreUnavailableError):
        await take_over(chain._store, SHARD, Owner("b", ""), lambda: 1e9, deadline_s=5)


@at_virtual_time
async def test_appends_wait_for_room() -> None:
    objects = Objects()
    chain = (await taken(objects)).chain
    weather = Weather(outage=True)
    chain._store = SimulatedStore(objects, Process("a"), weather, Random(1))
    done = [append(chain, at) for at in range(WINDOW)]
    room = asyncio.ensure_future(chain.room())
    await asyncio.sleep(10)
    assert not room.done()
    weather.outage = False
    await room
    await asyncio.gather(*done)
    assert (chain.in_flight, chain.bytes_in_flight) == (0, 0)


# --- takeovers that race ----------------------------------------------------------------------


@at_virtual_time
async def test_overtaken_between_listing_and_swap() -> None:
    objects = Objects()
    await taken(objects, "first")
    store = Store(objects)
    others: list[Taken] = []

    async def overtake() -> None:
        others.append(await taken(objects, "b"))
        await append(others[0].chain, 0)

    listed = Once(f"log/{SHARD:04d}", overtake)
    store.after_list = listed
    with pytest.raises(FencedError, match="b has taken over"):
        await take_over(store, SHARD, Owner("a", ""), lambda: 1e9)
    assert listed.was_called
    await append(others[0].chain, 1)
    assert await entries(objects) == [0, 1]


@at_virtual_time
async def test_overtaken_between_swap_and_fence() -> None:
    """The slower one must not fence where the other appends already: it has listed before."""
    objects = Objects()
    first = await taken(objects)
    store = Store(objects)
    others: list[Taken] = []

    async def overtake() -> None:
        others.append(await taken(objects, "c"))
        await append(others[0].chain, 0)

    store.after_replace = Once(manifest_path(SHARD), overtake)
    with pytest.raises(FencedError, match="epoch 3 has taken over"):
        await take_over(store, SHARD, Owner("b", ""), lambda: 1e9)
    await append(others[0].chain, 1)
    with pytest.raises(FencedError):
        await append(first.chain, 0)


@at_virtual_time
async def test_overtaken_before_the_fence_and_the_chain_there_is_deleted() -> None:
    """It fences where nothing is any more, and must learn of it before it appends."""
    objects = Objects()
    await taken(objects, "first")
    store = Store(objects)
    others: list[Taken] = []

    async def overtake() -> None:
        other = await taken(objects, "b")
        others.append(other)
        await append(other.chain, 0)
        for path in [path for path in objects.objects if path.startswith("log/")]:
            if path < chain_path(SHARD, other.chain.next_seq):
                objects.delete(path)
        start = other.chain.next_seq
        await other.chain.update(lambda now: replace(now, chain_start=start))

    store.before_create = Once(chain_path(SHARD, WINDOW), overtake)
    with pytest.raises(FencedError, match="b has taken over"):
        await take_over(store, SHARD, Owner("a", ""), lambda: 1e9)
    assert len(others) == 1


@at_virtual_time
async def test_a_listing_that_lags_costs_only_time() -> None:
    objects = Objects()
    chain = (await taken(objects)).chain
    first = chain.next_seq
    for at in range(5):
        await append(chain, at)
    store = Store(objects)
    store.lag = {chain_path(SHARD, first + 2), chain_path(SHARD, first + 4)}
    found = await take_over(store, SHARD, Owner("b", ""), lambda: 1e9)
    assert [header.first_id for _, header in found.objects] == list(range(5))


@at_virtual_time
async def test_objects_that_appear_while_fences_are_created() -> None:
    """The log ends at the first fence; what an earlier writer has behind it does not count."""
    objects = Objects()
    chain = (await taken(objects)).chain
    first = chain.next_seq
    seen = await look(Store(objects), SHARD)
    seen = seen._replace(listed=await list_chain(Store(objects), SHARD, 0))
    for at in range(3):
        await append(chain, at)
    objects.delete(chain_path(SHARD, first + 1))  # as if it were under way still
    new = await take_over(Store(objects), SHARD, Owner("b", ""), lambda: 1e9, seen=seen)
    assert [seq for seq, _ in new.objects] == [first]
    assert new.chain.next_seq == first + 1 + WINDOW
    assert await entries(objects) == [0]
    assert {chain_path(SHARD, seq) for seq in range(new.chain.next_seq)} <= set(objects.objects)
    await append(new.chain, 1)
    assert await entries(objects) == [0, 1]


@at_virtual_time
async def test_more_objects_appear_than_there_are_fences() -> None:
    objects = Objects()
    chain = (await taken(objects)).chain
    seen = Seen((await look(Store(objects), SHARD)).manifest, [])
    count = WINDOW + 3
    for at in range(count):
        await append(chain, at)
    new = await take_over(Store(objects), SHARD, Owner("b", ""), lambda: 1e9, seen=seen)
    assert [header.first_id for _, header in new.objects] == list(range(count))
    assert new.chain.next_seq == chain.next_seq + WINDOW


@at_virtual_time
async def test_a_look_with_an_earlier_manifest() -> None:
    objects = Objects()
    store = Store(objects)
    assert await look(store, SHARD) == (None, None)
    chain = (await taken(objects)).chain
    before = chain.manifest
    for at in range(3):
        await append(chain, at)
    start = chain.next_seq - 1
    after = await chain.update(lambda now: replace(now, chain_start=start))
    seen = await look(store, SHARD, before)
    assert seen.manifest is not None
    assert seen.manifest.manifest == after
    assert [each.seq for each in seen.listed or ()] == [start]
    assert (await look(store, SHARD, replace(before, chain_start=start + 1))).listed is None
    assert (await look(store, SHARD)).listed is None


@at_virtual_time
async def test_a_takeover_of_another_manifest_than_the_one_seen() -> None:
    objects = Objects()
    await taken(objects)
    seen = await look(Store(objects), SHARD)
    await taken(objects, "b")
    with pytest.raises(FencedError, match="b has taken over"):
        await take_over(Store(objects), SHARD, Owner("c", ""), lambda: 1e9, seen=seen)


# --- damage -----------------------------------------------------------------------------------


@at_virtual_time
async def test_a_foreign_object_in_the_chain_stops_the_owner() -> None:
    objects = Objects()
    chain = (await taken(objects)).chain
    objects.create(chain_path(SHARD, chain.next_seq), b"no chain object")
    with pytest.raises(FencedError, match="is not ours"):
        await append(chain, 0)


@at_virtual_time
async def test_a_missing_object_is_no_end_of_the_log() -> None:
    objects = Objects()
    chain = (await taken(objects)).chain
    for at in range(3):
        await append(chain, at)
    objects.delete(chain_path(SHARD, chain.next_seq - 2))
    store = Store(objects)
    with pytest.raises(Malformed, match="does not continue"):
        await read_all(store)


@at_virtual_time
async def test_a_hole_with_a_window_of_objects_behind_it_is_damage() -> None:
    """What is behind it was acknowledged: taking the hole for the end would lose it."""
    objects = Objects()
    chain = (await taken(objects)).chain
    first = chain.next_seq
    for at in range(WINDOW + 3):
        await append(chain, at)
    objects.delete(chain_path(SHARD, first + 2))
    with pytest.raises(Malformed, match=f"object {first + 2} of the chain is missing"):
        await taken(objects, "b")


@at_virtual_time
async def test_a_list_of_several_pages_may_lack_what_exists_by_now() -> None:
    objects = Objects()
    chain = (await taken(objects)).chain
    first = chain.next_seq
    for at in range(WINDOW + 3):
        await append(chain, at)
    store = Store(objects)
    store.lag = {chain_path(SHARD, first + 2)}
    found = await take_over(store, SHARD, Owner("b", ""), lambda: 1e9)
    assert len(found.objects) == WINDOW + 3


async def read_all(store: Store) -> None:
    seqs = [
        seq for seq in range(WINDOW, WINDOW + 3) if chain_path(SHARD, seq) in store.objects.objects
    ]
    valid_objects(await read_headers(store, SHARD, seqs))


@at_virtual_time
async def test_a_manifest_that_is_gone_or_damaged() -> None:
    for damage in (lambda objects: objects.delete(manifest_path(SHARD)), _garbled):
        objects = Objects()
        chain = (await taken(objects)).chain
        damage(objects)
        with pytest.raises(FencedError, match="manifest"):
            await chain.update(lambda now: replace(now, view="x"))


@at_virtual_time
async def test_a_shard_whose_manifest_is_gone_is_not_a_new_one() -> None:
    objects = Objects()
    await append((await taken(objects)).chain, 0)
    objects.delete(manifest_path(SHARD))
    with pytest.raises(Malformed, match="its manifest is missing"):
        await taken(objects, "b")


def _garbled(objects: Objects) -> None:
    objects.put(manifest_path(SHARD), b"{}")


# --- collection -------------------------------------------------------------------------------


def _kept() -> set[str]:
    return {file_path(SHARD, "kept", 1, 1)}


@at_virtual_time
async def test_collection() -> None:
    objects = Objects()
    chain = (await taken(objects)).chain
    for at in range(3):
        await append(chain, at)
    listing = directory_path(SHARD, 1, 2)
    named, kept, old = (file_path(SHARD, name, 1, 1) for name in ("named", "kept", "old"))
    for path in (named, kept, old, directory_path(SHARD, 1, 1), f"files/{SHARD:04d}/readme"):
        objects.put(path, b"x")
    objects.put(listing, encode_directory([StoredFile("named", named, 1)]))
    start = chain.next_seq - 1
    await chain.update(lambda now: replace(now, directory=listing, chain_start=start))
    collector = Collector(Store(objects), SHARD, chain.epoch, _kept, grace_s=60)
    assert await collector.collect(0) == (0, 0)
    assert await collector.collect(59) == (0, 0)
    deleted = await collector.collect(60)
    assert deleted.objects == 4, "two objects of the chain, a file, a list"
    left = set(objects.objects)
    fences = {chain_path(SHARD, seq) for seq in range(WINDOW)}
    assert left == {
        manifest_path(SHARD), named, kept, listing, f"files/{SHARD:04d}/readme",
        chain_path(SHARD, start), *fences,
    }  # fmt: skip
    await append(chain, 3)
    assert await entries(objects, start) == [2, 3]


@at_virtual_time
async def test_what_a_view_names_is_not_collected() -> None:
    objects = Objects()
    chain = (await taken(objects)).chain
    for at in range(3):
        await append(chain, at)
    first, end = WINDOW, chain.next_seq
    log, index = (file_path(SHARD, name, 1, 1) for name in ("0.log", "0.oidx"))
    for path in (log, index):
        objects.put(path, b"x")
    piece = SegmentPiece(0, 7, 0, 1, log, 0, index, 0, 1, "zones/0000/x")
    snapshot = SnapshotManifest(new_snapshot_id(1, 1), 1, "c", 3, None, None, [piece], [], [])
    view = view_path(SHARD, 1, 1)
    objects.put(view, encode_view(View(SHARD, first + 1, snapshot)))
    await chain.update(lambda now: replace(now, chain_start=end, view=view))
    collector = Collector(Store(objects), SHARD, chain.epoch, _kept, grace_s=0)
    assert (await collector.collect(0)).objects == 1
    assert {log, index, chain_path(SHARD, first + 1)} <= set(objects.objects)
    await chain.update(lambda now: replace(now, view=""))

    async def pinned() -> set[str]:
        return {log, index}

    pinning = Collector(Store(objects), SHARD, chain.epoch, _kept, grace_s=0, pinned=pinned)
    assert (await pinning.collect(0)).objects == 2
    assert {log, index} <= set(objects.objects), "a snapshot needs them"
    assert (await collector.collect(0)).objects == 2


@at_virtual_time
async def test_a_writer_that_wakes_up_after_its_place_was_collected() -> None:
    """Fences stay, so it cannot take an object that it creates today for a commit."""
    objects = Objects()
    chain = (await taken(objects)).chain
    store = Store(objects)
    chain._store = store

    async def overtake() -> None:
        new = (await taken(objects, "b")).chain
        await append(new, 0)
        await new.update(lambda now: replace(now, chain_start=new.next_seq))
        collector = Collector(Store(objects), SHARD, new.epoch, _kept, grace_s=0)
        assert (await collector.collect(0)).objects == 1

    store.before_create = Once(chain_path(SHARD, chain.next_seq), overtake)
    with pytest.raises(FencedError, match="epoch 2"):
        await append(chain, 0)


@at_virtual_time
async def test_a_former_owner_collects_nothing() -> None:
    objects = Objects()
    chain = (await taken(objects)).chain
    await taken(objects, "b")
    objects.put(file_path(SHARD, "x", 2, 1), b"x")
    collector = Collector(Store(objects), SHARD, chain.epoch, _kept, grace_s=0)
    assert await collector.collect(0) == (0, 0)


@at_virtual_time
async def test_a_list_of_files_that_is_missing() -> None:
    objects = Objects()
    chain = (await taken(objects)).chain
    await chain.update(lambda now: replace(now, directory=directory_path(SHARD, 1, 1)))
    with pytest.raises(ObjectNotFoundError):
        await Collector(Store(objects), SHARD, chain.epoch, _kept, grace_s=0).collect(0)


def test_a_fence_is_its_header() -> None:
    fence = fence_header(SHARD, 5, 2, Random(1))
    assert fence.kind == FENCE
    assert len(encode_header(fence)) == fence.size
