"""Takes over a shard: afterwards, no earlier writer can acknowledge anything."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from random import Random, SystemRandom
from typing import NamedTuple

from quafka_broker.chain.attempts import Attempts, in_parallel
from quafka_broker.chain.chain import Chain
from quafka_broker.chain.errors import FencedError, StoreUnavailableError
from quafka_broker.chain.lease import LEASE_MS
from quafka_broker.chain.manifest import StoredManifest, read_manifest, swap_manifest, taken_by
from quafka_broker.chain.objects import (
    ListedObject,
    create_or_find,
    fence_header,
    list_chain,
    read_headers,
    valid_objects,
)
from quafka_broker.chain.store import ChainStore
from quafka_objects.errors import ObjectNotFoundError
from quafka_proto.chain_format import (
    WINDOW,
    ChainHeader,
    Owner,
    ShardManifest,
    chain_folder,
    encode_header,
)
from quafka_proto.errors import Malformed
from quafka_telemetry import semconv
from quafka_telemetry.tracing import UNTRACED, Steps

ReadHeaders = Callable[[Sequence[ListedObject]], Awaitable[list[ChainHeader]]]
"""Reads the headers of listed objects. Raises as `read_headers`."""


class Seen(NamedTuple):
    """The facts on which the decision to take a shard over is based.

    Attributes:
        manifest: as read; None: the shard has none.
        listed: the chain's objects from `first_read` to the first hole, listed at any time before
            the takeover; None: not listed yet.
    """

    manifest: StoredManifest | None = None
    listed: Sequence[ListedObject] | None = None


class Taken(NamedTuple):
    """A shard that has been taken over.

    Attributes:
        chain: its chain, ready for appends.
        before: the manifest of the previous owner; for a new shard, one of epoch 0.
        objects: the end of the log: number and header of each object from `first_read` on that has
            entries and is not ignored, in order.
    """

    chain: Chain
    before: ShardManifest
    objects: list[tuple[int, ChainHeader]]


async def look(store: ChainStore, shard: int, known: ShardManifest | None = None) -> Seen:
    """Read the manifest and, if an earlier one is `known`, list the chain at the same time.

    Raises:
        Malformed: the manifest is damaged, or it or an object of the chain is missing.
    """
    if known is None:
        return Seen(await _manifest(store, shard))
    listing = asyncio.ensure_future(list_chain(store, shard, first_read(known)))
    try:
        found = await _manifest(store, shard)
        listed = await listing
    except Malformed:
        found = await _manifest(store, shard)  # after the list
        if found is None or found.manifest.nonce == known.nonce:
            raise
        return Seen(found)  # what is not needed any more was deleted: the takeover lists the rest
    finally:
        listing.cancel()
    start = 0 if found is None else first_read(found.manifest)
    if start < first_read(known):  # another chain than the known one
        return Seen(found)
    return Seen(found, [each for each in listed if each.seq >= start])


async def take_over(
    store: ChainStore,
    shard: int,
    owner: Owner,
    clock: Callable[[], float],
    *,
    seen: Seen | None = None,
    read: ReadHeaders | None = None,
    lease_ms: int = LEASE_MS,
    deadline_s: float = 30,
    random: Random | None = None,
    steps: Steps = UNTRACED,
) -> Taken:
    """Make `owner` the only writer of the shard. Creates the manifest if there is none.

    The caller decides whether a takeover is due (`should_take_over`), since it also stops a living
    owner. The new owner's lease begins now (`keep_lease` renews it).

    Args:
        clock: wall clock, seconds since 1970.
        seen: the facts of the decision; if there was another takeover since, or the owner has
            changed its manifest, nothing is taken. None: look now.
        read: reads the headers of listed objects; None: each by a request.
        steps: traces the round trips.

    Raises:
        FencedError: another broker was faster.
        StoreUnavailableError: the store has not answered in time. The epoch may be raised.
        Malformed: the manifest or the chain is damaged.
    """
    random = random or SystemRandom()
    try:
        async with asyncio.timeout(deadline_s):
            before, listed = seen or await look(store, shard)
            now = before.manifest if before else ShardManifest(shard)
            after = replace(
                now,
                epoch=now.epoch + 1,
                owner=owner,
                lease_until_ms=int(clock() * 1000) + lease_ms,
            )
            if listed is None:
                with steps.begin(semconv.SHARD_LIST):
                    listed = await _listed(store, before, now)
            return await _take(store, before, after, listed, read, random, steps)
    except TimeoutError as e:
        raise StoreUnavailableError(f"shard {shard}: the store does not answer") from e


async def _listed(
    store: ChainStore, before: StoredManifest | None, now: ShardManifest
) -> Sequence[ListedObject]:
    try:
        return await list_chain(store, now.shard, first_read(now))
    except Malformed:
        found = await read_manifest(store, now.shard)
        if found != before:  # a later owner has deleted what it does not need
            raise FencedError(taken_by(found)) from None
        raise


async def _take(
    store: ChainStore,
    before: StoredManifest | None,
    after: ShardManifest,
    listed: Sequence[ListedObject],
    read: ReadHeaders | None,
    random: Random,
    steps: Steps,
) -> Taken:
    """Raise the epoch, and prevent every other writer from adding to the chain.

    The order of the steps makes this safe against a faster takeover, even if this process sleeps
    between any two of them:

    - LIST comes before the compare and swap that raises the epoch. So a takeover with a higher
      epoch begins to fence after this LIST, at its end or behind it, and this one finds those
      fences before it reaches a place where the other owner appends.
    - The epoch is verified at the end: until then no other owner has deleted a part of the chain,
      in which fences would have no effect.

    Objects never change, so their headers are read at the same time.
    """
    shard = after.shard
    reading = asyncio.ensure_future(_read(store, shard, listed, read, steps))
    try:
        with steps.begin(semconv.SHARD_CLAIM):
            mine = await _raise_epoch(store, before, after, random)
        end = first_read(mine.manifest) + len(listed)
        with steps.begin(semconv.SHARD_FENCE):
            first, late = await _fence(store, mine.manifest, end, random)
        with steps.begin(semconv.SHARD_VERIFY):
            mine = await verify(store, mine)
        try:
            headers = await reading
        except ObjectNotFoundError as e:  # deleted since, by a later owner or by hand
            await verify(store, mine)
            raise Malformed(f"an object of the chain is missing: {e}") from e
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    objects = valid_objects([*headers, *late])
    chain = Chain(store, mine, first + WINDOW, random)
    now = before.manifest if before else ShardManifest(shard)
    return Taken(chain, now, [(header.seq, header) for header in objects])


async def _read(
    store: ChainStore,
    shard: int,
    listed: Sequence[ListedObject],
    read: ReadHeaders | None,
    steps: Steps,
) -> list[ChainHeader]:
    about = {
        semconv.STORE_OBJECTS: len(listed),
        semconv.STORE_BYTES: sum(each.size for each in listed),
    }
    with steps.begin(semconv.SHARD_READ_AHEAD, about):
        if read is None:
            return await read_headers(store, shard, [each.seq for each in listed])
        return await read(listed)


async def _manifest(store: ChainStore, shard: int) -> StoredManifest | None:
    """The manifest, or None for a new shard. Raises Malformed if only the manifest is missing."""
    found = await read_manifest(store, shard)
    if found is None:
        path = chain_folder(shard)
        attempts = Attempts(f"listing {path}")
        listed = await attempts.until_answered(lambda: store.list_objects(path))
        found = await read_manifest(store, shard)  # it may have been created meanwhile
        if listed and found is None:
            raise Malformed(f"shard {shard} has a chain, but its manifest is missing")
    return found


async def _raise_epoch(
    store: ChainStore, before: StoredManifest | None, after: ShardManifest, random: Random
) -> StoredManifest:
    attempts = Attempts(f"the manifest of shard {after.shard}")
    swapped, found = await swap_manifest(store, before, after, random, attempts)
    if not swapped or found is None:
        raise FencedError(taken_by(found))
    return found


def first_read(manifest: ShardManifest) -> int:
    """The first chain object that a new owner reads."""
    return max(manifest.chain_start, manifest.tail_start)


async def verify(store: ChainStore, mine: StoredManifest) -> StoredManifest:
    """Read the manifest again. Raises FencedError if its epoch was raised since."""
    found = await read_manifest(store, mine.manifest.shard)
    if found is None or found.manifest.nonce != mine.manifest.nonce:
        raise FencedError(taken_by(found))
    return found


async def _fence(
    store: ChainStore, mine: ShardManifest, seq: int, random: Random
) -> tuple[int, list[ChainHeader]]:
    """Fence the first hole from `seq` on, and the places behind it in which objects of an earlier
    writer may still be under way. All places before `seq` are taken.

    Returns:
        the number of the first fence, and the objects of earlier writers before it.
    """
    late: list[ChainHeader] = []
    while True:
        found = await _create_fences(store, mine, range(seq, seq + WINDOW), random)
        seq += WINDOW
        if None in found:
            break
        late += [header for header in found if header is not None]
    before = found.index(None)
    late += [header for header in found[:before] if header is not None]
    await _create_fences(store, mine, range(seq, seq + before), random)
    return seq - WINDOW + before, late


async def _create_fences(
    store: ChainStore, mine: ShardManifest, places: Sequence[int], random: Random
) -> list[ChainHeader | None]:
    """Create fences in parallel; returns for each place an earlier writer's object, or None.

    Raises FencedError if there is an object of a later writer.
    """
    fences = [fence_header(mine.shard, seq, mine.epoch, random) for seq in places]
    return await in_parallel(_create_fence(store, fence) for fence in fences)


async def _create_fence(store: ChainStore, fence: ChainHeader) -> ChainHeader | None:
    attempts = Attempts(f"fencing object {fence.seq} of shard {fence.shard}")
    found = await create_or_find(store, fence, encode_header(fence), attempts)
    if found.epoch > fence.epoch:
        raise FencedError(f"epoch {found.epoch} has taken over the shard")
    return None if found.nonce == fence.nonce else found
