"""What makes the groups of a log durable: syncs, or a chain of objects (`chain_durability`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from quafka_broker.wal.active_segment import ActiveSegment
from quafka_broker.wal.commit_group import CommitGroup
from quafka_broker.wal.publisher import Publisher


class Durability(Protocol):
    """Has groups published when they are durable, in their order.

    Attributes:
        group_bytes: a group of at least this size takes no further append.
        closing_seconds: the maximum time for the last groups of a log; None: unlimited.
    """

    group_bytes: int
    closing_seconds: float | None

    async def due(self, hurried: Callable[[], bool]) -> None:
        """Wait until a group may be written; less if `hurried`."""
        ...

    def commit(self, group: CommitGroup) -> None:
        """Make a group durable that is written and under way. Does not wait for it."""
        ...

    async def close(self) -> None:
        """Make everything durable, or fail; the writer has ended."""
        ...


class FsyncDurability:
    """Groups are durable when they are written: `ActiveSegment` syncs them."""

    closing_seconds: float | None = None

    def __init__(
        self,
        active: ActiveSegment,
        publisher: Publisher,
        group_bytes: int,
        interval: float | None,
    ) -> None:
        """`interval`: see `FsyncPolicy`."""
        self._active = active
        self._publisher = publisher
        self.group_bytes = group_bytes
        self._interval = interval
        self._late_sync: asyncio.Task[None] | None = None

    async def due(self, hurried: Callable[[], bool]) -> None:
        pass

    def commit(self, group: CommitGroup) -> None:
        self._publisher.publish()
        if self._interval and self._late_sync is None:
            self._late_sync = asyncio.create_task(self._sync_later(self._interval))

    async def close(self) -> None:
        if self._late_sync is not None:
            self._late_sync.cancel()
        await self._sync()

    async def _sync_later(self, interval: float) -> None:
        """For `wal.fsync=interval:...`: sync the writes of the last `interval` seconds."""
        await asyncio.sleep(interval)
        self._late_sync = None
        await self._sync()

    async def _sync(self) -> None:
        with suppress(OSError):  # then the log has failed
            await self._active.make_log_durable()
