"""Appends that wait to be written."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from quafka_broker.partitions.errors import StorageError
from quafka_broker.partitions.partition import Partition
from quafka_broker.wal.commit_group import Append, WriteTimes
from quafka_proto.records import BatchHeader

_MAX_PENDING_BYTES = 64 << 20


class AppendQueue:
    """Appends in the order of their calls, with a bound on their bytes.

    Attributes:
        waiting: the appends that no commit group has taken yet.
        bytes: the size of the pending appends: those that wait, and those being written.
        work: set when an append arrives.
        closed: why no append is accepted any more; None while they are.
    """

    def __init__(self) -> None:
        self.waiting: deque[Append] = deque()
        self.bytes = 0
        self.work = asyncio.Event()
        self.closed: str | None = None
        self._room = asyncio.Event()
        self._room_gate = asyncio.Lock()
        self._room_waiters = 0

    async def wait_for_room(self) -> None:
        """See `Log.wait_for_room`."""
        if not self._room_waiters and self.bytes < _MAX_PENDING_BYTES:
            return
        self._room_waiters += 1
        try:
            async with self._room_gate:
                while self.bytes >= _MAX_PENDING_BYTES:
                    self._room.clear()
                    await self._room.wait()
        finally:
            self._room_waiters -= 1

    def check_room(self) -> None:
        """Wake a caller of `wait_for_room`: appends have been answered."""
        self._room.set()

    def append(
        self,
        partition: Partition,
        batches: Sequence[tuple[BatchHeader, memoryview]],
        *,
        urgent: bool,
        writes: list[WriteTimes] | None = None,
    ) -> asyncio.Future[list[int]]:
        """See `Log.append`."""
        done: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        if self.closed is not None:
            done.set_exception(StorageError(self.closed))
            done.exception()
            return done
        size = sum(len(batch) for _, batch in batches)
        self.waiting.append(Append(partition, batches, size, done, urgent, writes))
        self.bytes += size
        self.work.set()
        return done

    def refuse(self, appends: Sequence[Append], reason: str, *, but_urgent: bool = False) -> None:
        """Refuse these appends and all waiting ones; with `but_urgent`, urgent ones go on waiting.

        Waiting appends are refused, too: a later batch of an idempotent producer must not get
        into the log before an earlier one.
        """
        refused = [*appends, *self.waiting]
        kept: list[Append] = []
        if but_urgent:
            kept = [append for append in refused if append.urgent]
            refused = [append for append in refused if not append.urgent]
        self.replace(kept)
        for append in refused:
            answer_error(append, StorageError(reason))

    def replace(self, appends: Sequence[Append]) -> None:
        """Only these wait from now on; nothing is being written."""
        self.waiting.clear()
        self.waiting.extend(appends)
        self.bytes = sum(append.size for append in appends)


def answer_error(append: Append, error: StorageError) -> None:
    """Fail an append, unless it has been answered or cancelled."""
    if not append.done.done():
        append.done.set_exception(error)
        append.done.exception()  # marks it as retrieved: the caller may be gone
