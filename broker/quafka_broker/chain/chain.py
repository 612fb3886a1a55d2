"""The owner's end of a shard's chain: appends, and changes of the manifest.

Objects are numbered in the order of `append`. Up to `WINDOW` of them are under way at once; an
append is done when its object and all before it exist. Once an object of another owner (a fence) is
found in the place of one, no further append is ever done: readers ignore everything after it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from random import Random
from typing import NamedTuple

from quafka_broker.chain.attempts import Attempts
from quafka_broker.chain.errors import FencedError, StoreUnavailableError
from quafka_broker.chain.manifest import StoredManifest, swap_manifest, taken_by
from quafka_broker.chain.objects import create_or_find
from quafka_broker.chain.store import ChainStore
from quafka_objects.store import Buffer
from quafka_proto.chain_format import (
    ENTRIES,
    NONCE_SIZE,
    WINDOW,
    ChainHeader,
    ShardManifest,
    encode_header,
)
from quafka_proto.errors import Malformed

MOST_BYTES = 32 << 20
"""Bytes of appends that are not done yet, beyond which `room` waits."""
_LONG_BYTES = 256 << 10
"""Size from which an object is assembled in a thread."""


class DurableEnd(NamedTuple):
    """How far the chain is durable: all objects below `seq`, whose entries end at this position.

    `segment` is -1 before the first append.
    """

    seq: int
    segment: int
    position: int


@dataclass(slots=True, eq=False)
class _Pending:
    """An append that is not done yet."""

    header: ChainHeader
    parts: Sequence[Buffer]
    done: asyncio.Future[None]
    exists: bool = False

    async def data(self) -> bytes:
        """The whole object; called once. Copying a long one takes milliseconds."""
        parts, self.parts = self.parts, ()
        if self.header.size < _LONG_BYTES:
            return b"".join(parts)
        return await asyncio.to_thread(b"".join, parts)


class Chain:
    """The chain of one shard, from the place that `take_over` has found.

    All methods but `update_blocking` are for the event loop that created it.

    Attributes:
        failure: why no append is done any more; None: all is well.
        on_fenced: called once with the reason, in a turn of the loop of its own, when `failure` is
            set by anything but `release` and `close`. All appends have failed by then.
        next_seq: the number of the next object.
        durable: the position up to which all appends are done; for any thread.
        trouble: why the store has not yet created the oldest object under way.
    """

    def __init__(
        self, store: ChainStore, stored: StoredManifest, next_seq: int, random: Random
    ) -> None:
        self.shard = stored.manifest.shard
        self.epoch = stored.manifest.epoch
        self.next_seq = next_seq
        self.durable = DurableEnd(next_seq, -1, 0)
        self.failure: str | None = None
        self.on_fenced: Callable[[str], None] = lambda _: None
        self._loop = asyncio.get_running_loop()
        self._store = store
        self._random = random
        self._stored = stored
        self._updates = asyncio.Lock()
        self._pending: deque[_Pending] = deque()
        self._bytes = 0
        self._sent = 0
        self._attempts: dict[int, Attempts] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._changed: list[asyncio.Future[None]] = []

    @property
    def manifest(self) -> ShardManifest:
        """The manifest after the last `update`."""
        return self._stored.manifest

    @property
    def in_flight(self) -> int:
        """Appends that are not done yet."""
        return len(self._pending)

    @property
    def bytes_in_flight(self) -> int:
        """Bytes of the appends that are not done yet."""
        return self._bytes

    @property
    def trouble(self) -> str | None:
        if not self._pending:
            return None
        attempts = self._attempts.get(self._pending[0].header.seq)
        return None if attempts is None else attempts.trouble

    # --- appends ------------------------------------------------------------------------------

    def append(
        self,
        segment: int,
        position: int,
        first_id: int,
        salt: int,
        entries: Sequence[Buffer],
        rows: bytes,
        count: int,
    ) -> asyncio.Future[None]:
        """Append one object: `count` entries as in the segment's log file, and their index rows.

        The future is done when the object and all before it exist. Futures are done in the order of
        the calls. After a FencedError the object may still be a part of the log, with all before
        it, if it was created before the new owner's fence.
        """
        done: asyncio.Future[None] = self._loop.create_future()
        if self.failure is not None:
            done.set_exception(FencedError(self.failure))
            return done
        header = ChainHeader(
            ENTRIES,
            self.shard,
            self.next_seq,
            self.epoch,
            self._random.randbytes(NONCE_SIZE),
            segment=segment,
            position=position,
            first_id=first_id,
            entries=count,
            salt=salt,
            length=sum(map(len, entries)),
        )
        self.next_seq += 1
        self._bytes += header.size
        parts = (encode_header(header), *entries, rows)
        self._pending.append(_Pending(header, parts, done))
        self._send()
        return done

    async def room(self) -> None:
        """Wait until another append would be sent, or fail, at once."""
        while self.failure is None and (len(self._pending) >= WINDOW or self._bytes >= MOST_BYTES):
            await self._change()

    async def drained(self) -> None:
        """Wait until no append is under way."""
        while self._pending:
            await self._change()

    def _send(self) -> None:
        """Send what the window allows: it bounds the objects that a new owner must fence out."""
        while self._sent < min(WINDOW, len(self._pending)):
            pending = self._pending[self._sent]
            self._sent += 1
            self._start(self._create(pending))

    async def _create(self, pending: _Pending) -> None:
        header = pending.header
        attempts = Attempts(f"creating object {header.seq} of shard {self.shard}")
        self._attempts[header.seq] = attempts
        try:
            data = await pending.data()
            assert len(data) == header.size
            found = await create_or_find(self._store, header, data, attempts)
        except Malformed as e:
            self._fail(f"object {header.seq} of the chain is not ours: {e}")
            return
        finally:
            del self._attempts[header.seq]
        if found.nonce != header.nonce:
            self._fail(f"epoch {found.epoch} has written object {header.seq} of the chain")
            return
        pending.exists = True
        self._acknowledge()

    def _acknowledge(self) -> None:
        while self._pending and self._pending[0].exists:
            first = self._pending.popleft()
            self._sent -= 1
            self._bytes -= first.header.size
            header = first.header
            end = header.position + header.length
            self.durable = DurableEnd(header.seq + 1, header.segment, end)
            if not first.done.done():
                first.done.set_result(None)
        self._send()
        self._wake()

    # --- the manifest -------------------------------------------------------------------------

    async def update(self, change: Callable[[ShardManifest], ShardManifest]) -> ShardManifest:
        """Change the manifest, durably; returns the resulting manifest.

        `change` gets the newest manifest, and may be called again. Updates run one after the other.

        Raises:
            FencedError: the shard has another owner, or this chain has failed.
        """
        async with self._updates:
            return await self._update(change)

    def update_blocking(
        self, change: Callable[[ShardManifest], ShardManifest], seconds: float | None = None
    ) -> ShardManifest:
        """`update` for a thread other than the event loop's, which blocks for at most `seconds`.

        Raises:
            FencedError: see `update`.
            StoreUnavailableError: no answer in time; the change may still take effect.
        """
        update = asyncio.run_coroutine_threadsafe(self.update(change), self._loop)
        try:
            return update.result(seconds)
        except (TimeoutError, CancelledError) as e:
            update.cancel()
            raise StoreUnavailableError(f"the manifest of shard {self.shard}: no answer") from e

    async def release(self) -> None:
        """Wait for all appends, and give the shard up, so that another broker may take it at once.

        There must be no append meanwhile. Afterwards the chain is closed.

        Raises:
            FencedError: another broker has taken it already.
        """
        await self.drained()
        async with self._updates:
            await self._update(lambda now: replace(now, owner=None, lease_until_ms=0))
            self._stop("the shard was released")
        await self.close()

    async def close(self, reason: str = "the chain is closed") -> None:
        """Stop: appends that are not done fail; their objects may exist."""
        self._stop(reason)
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _update(self, change: Callable[[ShardManifest], ShardManifest]) -> ShardManifest:
        while self.failure is None:
            before = self._stored
            after = change(before.manifest)
            if after == before.manifest:
                return after
            assert (after.epoch, after.shard) == (self.epoch, self.shard)
            attempts = Attempts(f"the manifest of shard {self.shard}")
            try:
                swapped, found = await swap_manifest(
                    self._store, before, after, self._random, attempts
                )
            except Malformed as e:
                self._fail(f"the manifest is damaged: {e}")
                break
            if found is None or found.manifest.epoch != self.epoch:
                self._fail(taken_by(found))
                break
            self._stored = found
            if swapped:  # otherwise a cancelled update has arrived late
                return found.manifest
        raise FencedError(self.failure)

    # --- the end ------------------------------------------------------------------------------

    def _fail(self, reason: str) -> None:
        if self.failure is None:
            self._stop(reason)
            self._loop.call_soon(self.on_fenced, reason)

    def _stop(self, reason: str) -> None:
        if self.failure is None:
            self.failure = reason
        failed, self._pending = self._pending, deque()
        self._bytes = self._sent = 0
        for pending in failed:
            if not pending.done.done():
                pending.done.set_exception(FencedError(self.failure))
        for task in self._tasks:
            task.cancel()
        self._wake()

    def _start(self, run: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(run)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _change(self) -> None:
        changed: asyncio.Future[None] = self._loop.create_future()
        self._changed.append(changed)
        await changed

    def _wake(self) -> None:
        waiting, self._changed = self._changed, []
        for changed in waiting:
            if not changed.done():
                changed.set_result(None)
