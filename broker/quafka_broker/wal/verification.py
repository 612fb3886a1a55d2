"""Verifies, once, the bytes that this process has not written itself.

The bytes that this process wrote were checked on arrival. Those of earlier runs are verified in the
background when they are first requested by place, because readers of places get them without
another check. Until then, and for good if a byte is damaged, they are read by value, which verifies
every batch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from quafka_broker.wal.contents import Contents
from quafka_broker.wal.index_rebuild import IndexRebuilds
from quafka_broker.wal.runs import BadEntry, EntryRun, from_disk, read_run
from quafka_broker.wal.segment import ROWS_PER_SAMPLE, BadIndexError, Segment
from quafka_loop import clock, threads
from quafka_proto.errors import Malformed
from quafka_proto.log_format import FILE_HEADER_SIZE, IndexRow

log = logging.getLogger("quafka.broker.wal")

_STEP_BYTES = 1 << 20
_BYTES_PER_SECOND = 256 << 20
_CPU_SHARE = 0.5
_RETRY_SECONDS = 60.0


class _StoppedError(Exception):
    """The broker stops."""


class LogVerification:
    """Verifies one log's segments, one at a time, in the order of requests."""

    def __init__(self, contents: Contents, rebuilds: IndexRebuilds) -> None:
        self._contents = contents
        self._rebuilds = rebuilds
        self._wanted: dict[Segment, None] = {}
        self._failed: dict[Segment, float] = {}
        self._task: asyncio.Task[None] | None = None
        self._stop = threads.Event()
        self._thread: threads.ThreadPoolExecutor | None = None

    def is_good(self, segment: Segment) -> bool:
        """Whether every byte of a segment may be read without another check.

        If this is unknown, the segment is verified in the background.
        """
        if self._contents.quarantine.is_in(segment.number):
            return False
        if not segment.is_verified:
            self._want(segment)
        return segment.is_verified

    @property
    def busy(self) -> bool:
        """Whether a segment is being verified."""
        return bool(self._wanted)

    def is_sealed(self, segment: Segment) -> bool:
        """Whether a segment gets no more appends."""
        return segment is not self._contents.segments[-1]

    def when_withdrawn(self, call: Callable[[Segment], None]) -> None:
        """Set a function to call with each segment that is rewritten, freed or found damaged."""
        self._contents.on_withdrawn = call

    async def close(self) -> None:
        """Stop verifying."""
        self._stop.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.shutdown)

    def _want(self, segment: Segment) -> None:
        if segment in self._wanted or self._stop.is_set():
            return
        loop = asyncio.get_running_loop()
        if loop.time() < self._failed.get(segment, 0.0):
            return
        self._wanted[segment] = None
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._run())

    async def _run(self) -> None:
        self._thread = self._thread or threads.ThreadPoolExecutor(
            1, thread_name_prefix="wal-verify"
        )
        while self._wanted:
            segment = next(iter(self._wanted))
            if segment in self._contents.segments:
                await self._verify(segment)
            del self._wanted[segment]
        known = set(self._contents.segments)
        self._failed = {each: until for each, until in self._failed.items() if each in known}

    async def _verify(self, segment: Segment) -> None:
        begun = clock.monotonic()
        try:
            try:
                orgs, bad = await self._in_thread(segment)
            except BadIndexError as e:
                if not await self._rebuilds.rebuild(e.segment):
                    raise
                orgs, bad = await self._in_thread(segment)
        except (OSError, Malformed) as e:
            self._failed[segment] = asyncio.get_running_loop().time() + _RETRY_SECONDS
            log.warning("segment %d is read by value: %s", segment.number, e)
            return
        for each in bad:
            self._contents.add_bad_entry(*each)
        if not bad:
            segment.orgs |= orgs
            segment.unverified_to = FILE_HEADER_SIZE
            took = clock.monotonic() - begun
            log.info("segment %d verified in %.1f s", segment.number, took)

    async def _in_thread(self, segment: Segment) -> tuple[set[int], list[BadEntry]]:
        job = _Job(segment, self._stop)
        return await asyncio.get_running_loop().run_in_executor(self._thread, job.run)


class _Job:
    """Verifies the entries of one segment, in a thread, with pauses."""

    def __init__(self, segment: Segment, stop: threads.Event) -> None:
        self._segment = segment
        self._stop = stop
        self._entries, self._end = segment.entries, segment.unverified_to
        self._orgs: set[int] = set()
        self._bad: list[BadEntry] = []
        self._run: list[IndexRow] = []

    def run(self) -> tuple[set[int], list[BadEntry]]:
        """The orgs of the entries, and the bad entries.

        Raises:
            OSError, Malformed: a file cannot be read.
            _StoppedError: the broker stops.
        """
        for start in range(0, self._entries, ROWS_PER_SAMPLE):
            rows = self._segment.rows(start, from_disk)
            for number in range(rows.start, min(rows.end, self._entries)):
                self._add(rows.row(number))
        self._finish_run()
        return self._orgs, self._bad

    def _add(self, row: IndexRow) -> None:
        if row.position >= self._end:
            return
        self._orgs.add(row.org_id)
        run = self._run
        if run and (row.position != run[-1].end or row.end - run[0].position > _STEP_BYTES):
            self._finish_run()
        self._run.append(row)

    def _finish_run(self) -> None:
        rows, self._run = self._run, []
        if not rows:
            return
        if self._stop.is_set():
            raise _StoppedError
        used = clock.thread_time()
        run = EntryRun(self._segment, rows)
        bad = read_run(run, from_disk, [])
        while bad is not None:
            self._bad.append(bad)
            rest = rows[rows.index(bad.row) + 1 :]
            bad = read_run(EntryRun(self._segment, rest), from_disk, []) if rest else None
            rows = rest
        used = clock.thread_time() - used
        clock.sleep(max(run.size / _BYTES_PER_SECOND, used * (1 / _CPU_SHARE - 1)))
