"""Checks batches: short ones on the event loop, long ones in a thread.

One thread checks all long batches, so checks use at most one core. Orgs take turns, so the long
batches of an org delay only that org. Batches are appended to a partition in the order of arrival,
even if an earlier one takes longer to check.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from quafka_broker.admission.checks import Admitted, Scratch, admit
from quafka_broker.partitions.partition import PartitionId
from quafka_broker.topics.configs import TopicPolicy
from quafka_loop import clock, threads
from quafka_loop.org_queue import OrgQueue
from quafka_proto.errors import BatchError
from quafka_proto.message import Buffer
from quafka_proto.record_check import Effort, TooLongError, vectors_loaded
from quafka_proto.records import BATCH_HEADER_SIZE, claims

# The maximum that is checked on the event loop without a pause, about a millisecond's worth:
# uncompressed bytes, records, compressed bytes (before and after decompression), and headers.
SHORT_BYTES = 1 << 20
SHORT_RECORDS = 4_096
_SHORT_COMPRESSED = 256 << 10
_SHORT_HEADERS = 1_000
_THREADS_SCRATCH = 1 << 20
_BREATH = 50e-6

Verdict = Admitted | BatchError
Line = PartitionId | tuple[int, str]
"""The subject of a line of batches: a partition, or a transactional id and its org."""


@dataclass(slots=True)
class Spent:
    """Seconds of CPU that the thread has spent on an op's batches."""

    seconds: float = 0.0


class _Job(NamedTuple):
    run: Callable[[], Verdict]
    done: asyncio.Future[Verdict]


class Admissions:
    """Checks the batches of a broker."""

    def __init__(self) -> None:
        self._scratch = Scratch(_SHORT_COMPRESSED)
        self._effort = Effort()
        self._threads_scratch: Scratch | None = None
        self._thread = threads.ThreadPoolExecutor(1, thread_name_prefix="check")
        self._waiting: OrgQueue[_Job] = OrgQueue()
        self._running: asyncio.Future[Verdict] | None = None
        self._last: dict[Line, asyncio.Future[None]] = {}
        self.in_thread = 0
        """Batches that were checked in the thread since the start."""

    # --- checks -----------------------------------------------------------------------------

    def check_now(self, policy: TopicPolicy, records: Buffer, now_ms: int) -> Verdict | None:
        """Check a short batch; None if the batch would take more than about a millisecond."""
        if not _may_be_short(records):
            return None
        effort = self._effort
        effort.headers, effort.vectors = _SHORT_HEADERS, vectors_loaded()
        try:
            return admit(
                policy, records, now_ms, self._scratch, effort=effort, at_most=_SHORT_COMPRESSED
            )
        except BatchError as e:
            return _bare(e)
        except TooLongError:
            return None

    def check_in_thread(
        self, org: int, policy: TopicPolicy, records: Buffer, now_ms: int, spent: Spent
    ) -> asyncio.Future[Verdict]:
        """Check a batch in the thread, in the org's turn; adds what it costs to `spent`."""

        def run() -> Verdict:
            scratch = self._threads_scratch = self._threads_scratch or Scratch(_THREADS_SCRATCH)
            began = clock.thread_time()
            try:
                return admit(policy, records, now_ms, scratch, effort=Effort(pause=_breathe))
            except BatchError as e:
                return _bare(e)
            finally:
                spent.seconds += clock.thread_time() - began

        done: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._waiting.add(org, _Job(run, done))
        self.in_thread += 1
        self._next()
        return done

    def _next(self) -> None:
        while self._running is None and self._waiting:
            job = self._waiting.pop()
            if job.done.cancelled():
                continue  # its caller is gone
            loop = asyncio.get_running_loop()
            self._running = loop.run_in_executor(self._thread, job.run)
            self._running.add_done_callback(partial(self._ended, job))

    def _ended(self, job: _Job, ran: asyncio.Future[Verdict]) -> None:
        self._running = None
        if not job.done.done():
            error = None if ran.cancelled() else ran.exception()
            if ran.cancelled():
                job.done.cancel()
            elif error is not None:
                job.done.set_exception(error)
            else:
                job.done.set_result(ran.result())
        self._next()

    def close(self) -> None:
        """Cancel all waiting checks."""
        while self._waiting:
            self._waiting.pop().done.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)

    # --- order ------------------------------------------------------------------------------

    def is_clear(self, partitions: Iterable[Line]) -> bool:
        """Whether no earlier batch waits to be appended to any of these partitions."""
        return not self._last or self._last.keys().isdisjoint(partitions)

    @contextmanager
    def in_order(self, partitions: Iterable[Line]) -> Generator[set[asyncio.Future[None]]]:
        """Hold a place in the line of each partition; yields the futures of the preceding places.

        Later batches for one of the partitions wait until the context ends. An op takes all its
        places in one step on its arrival, so no op ever waits for itself.
        """
        partitions = list(partitions)
        ahead = {self._last[partition] for partition in partitions if partition in self._last}
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._last.update(dict.fromkeys(partitions, mine))
        try:
            yield ahead
        finally:
            mine.set_result(None)
            for partition in partitions:
                if self._last.get(partition) is mine:
                    del self._last[partition]


def _bare(error: BatchError) -> BatchError:
    """Drop the traceback and cause: their frames hold up to 64 MiB of decompressed records."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def claimed_records(records: Buffer) -> int:
    """The number of records that a batch claims, which bounds the checks."""
    if len(records) < BATCH_HEADER_SIZE:
        return 0
    return max(0, claims(records)[1])


def _may_be_short(records: Buffer) -> bool:
    """Decide by the header alone. Bytes that are no batch count as short: they are refused soon."""
    if len(records) < BATCH_HEADER_SIZE:
        return True
    codec, count = claims(records)
    return len(records) <= (_SHORT_COMPRESSED if codec else SHORT_BYTES) and count <= SHORT_RECORDS


def _breathe() -> None:
    """Yield the interpreter to the event loop; see `Effort`."""
    clock.sleep(_BREATH)
