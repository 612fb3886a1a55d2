"""Schedules a log's checkpoints: by bytes written, on request, and at a clean end."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Sequence
from typing import NamedTuple

from quafka_broker.wal.acceptance import Acceptance
from quafka_broker.wal.checkpoint_file import Checkpoint
from quafka_broker.wal.checkpoint_task import CheckpointTask
from quafka_broker.wal.commit_group import WriterStats
from quafka_broker.wal.segment import Segment
from quafka_loop import clock

log = logging.getLogger("quafka.broker.wal")

_SOON_SECONDS = 5.0
_SOON_FACTOR = 20
"""A requested checkpoint waits for at least this multiple of the time that the last one took."""
_FAILED = "no checkpoint could be written, the previous one remains in use: %s"


class CheckpointFigures(NamedTuple):
    """The coverage of the log by checkpoints.

    Attributes:
        uncovered_bytes: bytes in the log after the last checkpoint.
        taken_at: `time.monotonic()` of the last checkpoint; 0 before the first of this process.
    """

    uncovered_bytes: int
    taken_at: float
    failures: int


class CheckpointSchedule:
    """Takes the checkpoints of one log, one at a time, and none before `enable`."""

    def __init__(
        self,
        task: CheckpointTask,
        stats: WriterStats,
        acceptance: Acceptance,
        every_bytes: int,
        uncovered_bytes: int,
    ) -> None:
        """`uncovered_bytes` of the log are not covered by the checkpoint that the start read."""
        self._task = task
        self._stats = stats
        self._acceptance = acceptance
        self._every_bytes = every_bytes
        self._enabled = self._closing = False
        self._running: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        # Bytes up to the next checkpoint count from the start of the last one, even if it failed.
        self._due_bytes = uncovered_bytes
        self._begun_at_bytes = 0  # the count of bytes at that time
        # Relative to the count of written bytes.
        self._uncovered_bytes = uncovered_bytes
        self._taken_at = 0.0
        self._seconds = 0.0
        self._failures = 0

    def figures(self) -> CheckpointFigures:
        """The coverage, for metrics."""
        uncovered = self._uncovered_bytes + self._stats.bytes
        return CheckpointFigures(uncovered, self._taken_at, self._failures)

    def enable(self) -> None:
        """Take checkpoints from now on."""
        self._enabled = True
        self.begin_if_due()

    def disable(self) -> None:
        """Take no more checkpoints, not even at the end."""
        self._enabled = False

    def begin_if_due(self) -> None:
        """Begin a checkpoint if enough bytes have been written since the last one."""
        due = self._due_bytes + self._stats.bytes - self._begun_at_bytes
        if (
            due >= self._every_bytes
            and self._enabled
            and self._running is None
            and self._acceptance.failure is None
        ):
            self._begin()

    def soon(self) -> None:
        """Take a checkpoint in a few seconds, later if checkpoints take long."""
        if self._timer is None and self._enabled and not self._closing:
            delay = max(_SOON_SECONDS, self._seconds * _SOON_FACTOR)
            self._timer = asyncio.get_running_loop().call_later(delay, self._begin_soon)

    async def now(self) -> None:
        """Take a checkpoint now.

        Raises:
            OSError: it could not be written, or the log closes; the previous one remains valid.
        """
        while self._running is not None:
            await asyncio.wait([self._running])
        if self._closing:
            raise OSError(errno.ESHUTDOWN, "the log closes")
        task = self._running = asyncio.create_task(self._take())
        task.add_done_callback(self._ended)
        await asyncio.shield(task)

    async def close(self, least_bytes: int = 0) -> None:
        """Take a last checkpoint, if the log has not failed.

        Args:
            least_bytes: fewer uncovered bytes are left to the next start.
        """
        self.stop_timer()
        if self._running is not None:
            await asyncio.wait([self._running])
        few = self.figures().uncovered_bytes < least_bytes
        if self._enabled and self._acceptance.failure is None and not few:
            await self._take_or_warn()

    def stop_timer(self) -> None:
        """Ignore `soon` from now on, since the log closes."""
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()

    def _begin_soon(self) -> None:
        self._timer = None
        if self._running is None and self._acceptance.failure is None:
            self._begin()

    def _begin(self) -> None:
        self._due_bytes, self._begun_at_bytes = 0, self._stats.bytes
        self._running = asyncio.create_task(self._take_or_warn())
        self._running.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running = None
        error = None if task.cancelled() else task.exception()
        if isinstance(error, OSError):
            log.warning(_FAILED, error)
        elif error is not None:
            log.error("a checkpoint failed", exc_info=error)

    async def _take(self) -> None:
        written, began = self._stats.bytes, clock.monotonic()
        try:
            await self._task.take_checkpoint()
        except OSError:
            self._failures += 1
            raise
        self._taken_at = clock.monotonic()
        self._seconds = self._taken_at - began
        self._uncovered_bytes = -written

    async def _take_or_warn(self) -> None:
        try:
            await self._take()
        except OSError as e:
            log.warning(_FAILED, e)


def uncovered_bytes(checkpoint: Checkpoint | None, segments: Sequence[Segment]) -> int:
    """The bytes of the log that a checkpoint does not cover."""
    covered = sum(state.end for state in checkpoint.segments) if checkpoint is not None else 0
    return max(0, sum(segment.end for segment in segments) - covered)
