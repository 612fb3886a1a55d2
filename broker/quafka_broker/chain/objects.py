"""Creates and reads chain objects in the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from random import Random
from typing import NamedTuple

from quafka_broker.chain.attempts import Attempts, in_parallel
from quafka_broker.chain.store import ChainStore
from quafka_objects.errors import ObjectExistsError, ObjectNotFoundError
from quafka_proto.chain_format import (
    ENTRIES,
    FENCE,
    HEADER_SIZE,
    NONCE_SIZE,
    WINDOW,
    ChainHeader,
    chain_folder,
    chain_path,
    decode_header,
    seq_of,
)
from quafka_proto.errors import Malformed

_READS_AT_ONCE = 32


class ListedObject(NamedTuple):
    """An object of the chain in a listing: its number, and its size."""

    seq: int
    size: int


async def create_or_find(
    store: ChainStore, header: ChainHeader, data: bytes, attempts: Attempts
) -> ChainHeader:
    """Create an object unless the place is taken; returns the header of the object in it.

    The object was created here, by this attempt or by one whose answer was lost, if and only if it
    has the nonce of `header`. A store's refusal alone proves nothing: a retried request finds its
    own object, and some stores refuse because of a concurrent request that then fails.

    Raises:
        Malformed: the object in the place is not a chain object.
    """
    path = chain_path(header.shard, header.seq)
    while True:
        try:
            await attempts.once(lambda: store.create(path, data))
        except ObjectExistsError:
            try:
                return await read_header(store, header.shard, header.seq, attempts)
            except ObjectNotFoundError:
                pass
        except OSError:
            pass
        else:
            return header
        await attempts.pause()


def fence_header(shard: int, seq: int, epoch: int, random: Random) -> ChainHeader:
    """The header of a new fence, which is the whole object."""
    return ChainHeader(FENCE, shard, seq, epoch, random.randbytes(NONCE_SIZE))


async def read_header(
    store: ChainStore, shard: int, seq: int, attempts: Attempts | None = None
) -> ChainHeader:
    """Read the header of an object, however long the store takes to answer.

    Raises:
        ObjectNotFoundError: there is none.
        Malformed: it is damaged.
    """
    path = chain_path(shard, seq)
    attempts = attempts or Attempts(f"reading {path}")
    data = await attempts.until_answered(lambda: store.read(path, 0, HEADER_SIZE))
    return decode_header(data, shard, seq)


async def read_headers(store: ChainStore, shard: int, seqs: Iterable[int]) -> list[ChainHeader]:
    """The headers of several objects, read in parallel. Raises as `read_header`."""
    gate = asyncio.Semaphore(_READS_AT_ONCE)

    async def read(seq: int) -> ChainHeader:
        async with gate:
            return await read_header(store, shard, seq)

    return await in_parallel(read(seq) for seq in seqs)


async def read_object(
    store: ChainStore, shard: int, seq: int, attempts: Attempts | None = None
) -> tuple[ChainHeader, memoryview]:
    """Read a whole object, however long the store takes to answer.

    The header and the size are verified; entries and rows have checksums of their own.

    Raises:
        ObjectNotFoundError: there is none.
        Malformed: it is damaged.
    """
    path = chain_path(shard, seq)
    attempts = attempts or Attempts(f"reading {path}")
    data = memoryview(await attempts.until_answered(lambda: store.read(path)))
    header = decode_header(data, shard, seq)
    if len(data) != header.size:
        raise Malformed(f"chain object {seq} has {len(data)} bytes instead of {header.size}")
    return header, data


async def read_objects(
    store: ChainStore, shard: int, seqs: Sequence[int], at_once: int = _READS_AT_ONCE
) -> AsyncIterator[tuple[ChainHeader, memoryview]]:
    """Read whole objects, in order; up to `at_once` are in memory. Raises as `read_object`."""
    ahead = [asyncio.ensure_future(read_object(store, shard, seq)) for seq in seqs[:at_once]]
    try:
        for seq in [*seqs[at_once:], *([None] * at_once)]:
            if not ahead:
                return
            yield await ahead.pop(0)
            if seq is not None:
                ahead.append(asyncio.ensure_future(read_object(store, shard, seq)))
    finally:
        for read in ahead:
            read.cancel()


async def list_chain(store: ChainStore, shard: int, start: int) -> list[ListedObject]:
    """The objects from `start` up to the first missing one.

    Raises:
        Malformed: the missing one was there before: no object is sent before all but the
            `WINDOW` - 1 before it exist. The objects after it may have been acknowledged.
    """
    after = chain_path(shard, start - 1) if start else ""
    found = await Attempts(f"listing shard {shard}").until_answered(
        lambda: store.list_objects(chain_folder(shard), after)
    )
    sizes = {seq: info.size for info in found if (seq := seq_of(info.path)) is not None}
    last = max(sizes, default=-1)
    listed: list[ListedObject] = []
    while (seq := start + len(listed)) in sizes or seq <= last - WINDOW:
        if seq not in sizes:  # the pages of a list are read one after the other: it may exist now
            sizes[seq] = (await _existing(store, shard, seq)).size
        listed.append(ListedObject(seq, sizes[seq]))
    return listed


async def _existing(store: ChainStore, shard: int, seq: int) -> ChainHeader:
    try:
        return await read_header(store, shard, seq)
    except ObjectNotFoundError as e:
        raise Malformed(f"object {seq} of the chain is missing, and later ones exist") from e


def valid_objects(headers: Iterable[ChainHeader]) -> list[ChainHeader]:
    """Of objects in the order of their numbers, those with entries that readers do not ignore.

    Raises:
        Malformed: an object does not continue its segment where the one before it ends.
    """
    epoch = 0
    valid: list[ChainHeader] = []
    for header in headers:
        if header.epoch < epoch:
            continue
        epoch = header.epoch
        if header.kind == ENTRIES:
            if valid and not _adjoins(valid[-1], header):
                raise Malformed(f"chain object {header.seq} does not continue {valid[-1].seq}")
            valid.append(header)
    return valid


def _adjoins(before: ChainHeader, after: ChainHeader) -> bool:
    if before.segment == after.segment:
        return after.position == before.position + before.length
    return before.segment < after.segment
