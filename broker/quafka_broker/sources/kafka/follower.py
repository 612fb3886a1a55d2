"""Follows Kafka's folders: opens partitions on first use, and looks for Kafka's changes.

A partition is looked at when a client needs its bounds, and periodically while fetches are parked
for it. Looks take at most a twentieth of one thread's time: with more partitions to watch they
become rarer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from quafka_broker.kafka_logs.errors import KafkaLogError
from quafka_broker.kafka_logs.log_folders import KafkaFolders
from quafka_broker.kafka_logs.log_view import LogView
from quafka_broker.kafka_logs.partition_log import PartitionLog
from quafka_broker.sources.kafka.followed import Followed
from quafka_broker.sources.source import ASK_SECONDS, Waiters
from quafka_loop import clock, threads
from quafka_loop.slices import Slices
from quafka_proto.errors import ErrorCode, Malformed

log = logging.getLogger("quafka.broker.kafka")

_INTERVAL_SECONDS = 0.025
_SHARE = 20
_FRESH_SECONDS = 0.1
_RETRY_SECONDS = 1.0
_PER_SLICE = 200

_UNREADABLE = (KafkaLogError, KeyError, Malformed, OSError)
"""KeyError: Kafka has removed the partition from these folders."""

_Look = tuple[Followed, LogView | str]
"""A partition's view, or the reason why it has none."""


class KafkaFollower:
    """Keeps the views of partitions. For one event loop."""

    def __init__(
        self, folders: KafkaFolders, waiters: Waiters, withdrawn: Callable[[Followed], None]
    ) -> None:
        """`withdrawn` is called with a partition that has lost records."""
        self.threads = threads.ThreadPoolExecutor(4, thread_name_prefix="kafka-read")
        self._openers = threads.ThreadPoolExecutor(2, thread_name_prefix="kafka-open")
        self._thread = threads.ThreadPoolExecutor(1, thread_name_prefix="kafka-follow")
        self._folders = folders
        self._waiters = waiters
        self._withdrawn = withdrawn
        self._due: dict[Followed, None] = {}
        self._watched: dict[Followed, None] = {}
        self._news = asyncio.Event()
        self._opening: dict[Followed, asyncio.Task[None]] = {}

    def close(self) -> None:
        """Wait for running reads."""
        for task in self._opening.values():
            task.cancel()
        for each in (self.threads, self._openers, self._thread):
            each.shutdown(cancel_futures=True)

    # --- questions --------------------------------------------------------------------------

    def unready(self, each: Followed, offset: int) -> ErrorCode | asyncio.Future[None] | None:
        """See `PartitionSource.unready`. Offsets below the known end need no fresh bounds."""
        if each.folder is None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if each.asked is not None and each.view is None:
            return each.asked
        age = asyncio.get_running_loop().time() - each.refreshed_at
        if each.failure:
            return self._ask(each) if age > _RETRY_SECONDS else ErrorCode.KAFKA_STORAGE_ERROR
        within = each.view is not None and each.view.log_start <= offset < each.view.log_end
        return None if within or age <= _FRESH_SECONDS else self._ask(each)

    async def look_again(self, each: Followed) -> None:
        """Look at the folder now, since the view is outdated."""
        await asyncio.wait((self._ask(each),), timeout=ASK_SECONDS)

    def watch(self, each: Followed) -> None:
        """Look at the partition regularly while fetches are parked for it."""
        if each.folder is not None and each not in self._watched:
            self._watched[each] = None
            self._news.set()

    def _ask(self, each: Followed) -> asyncio.Future[None]:
        if each.asked is None:
            each.asked = asyncio.get_running_loop().create_future()
            if each.log is None or each.has_moved:
                self._begin_open(each)
            else:
                self._due[each] = None
                self._news.set()
        return each.asked

    def _begin_open(self, each: Followed) -> None:
        if each not in self._opening:
            self._opening[each] = asyncio.create_task(self._open(each))

    async def _open(self, each: Followed) -> None:
        """Open a partition; bytes that Kafka has not synced are verified, which may take long."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(
                self._openers, self._folders.open, each.topic, each.number
            )
        except _UNREADABLE as e:
            self._settle(each, _reason(e))
            return
        finally:
            del self._opening[each]
        each.log = found
        each.has_moved = found.path != each.folder
        self._settle(each, found.view)

    def moved(self, each: Followed, folder: Path | None) -> None:
        """Note that the partition is in another folder, or (None) in no folder."""
        each.folder = folder
        each.has_moved = each.log is not None and folder is not None
        each.refreshed_at = float("-inf")
        if each.has_moved:
            self._begin_open(each)

    # --- looks ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Look at partitions when they are due, until cancelled."""
        loop = asyncio.get_running_loop()
        rounds_from = loop.time()
        while True:
            wait = max(0.0, rounds_from - loop.time()) if self._watched else None
            if not self._due:
                await self._wait_for_news(wait)
            self._news.clear()
            due, self._due = self._due, {}
            now = loop.time()
            if self._watched and now >= rounds_from:
                parked = filter(lambda each: self._waiters.waits_for(each.id), self._watched)
                self._watched = dict.fromkeys(parked)
                due |= self._watched
            if not due:
                continue
            took = await self._look_at(due)
            rounds_from = loop.time() + max(_INTERVAL_SECONDS, _SHARE * took)

    async def _wait_for_news(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            pass

    async def _look_at(self, due: Collection[Followed]) -> float:
        """Look at these partitions; returns the CPU time of the thread, in seconds."""
        opened: list[tuple[Followed, PartitionLog]] = []
        slices = Slices(_PER_SLICE)
        for each in due:
            if each.has_moved:
                self._begin_open(each)
            elif each.log is not None:
                opened.append((each, each.log))
            await slices.done()
        loop = asyncio.get_running_loop()
        looks, took = await loop.run_in_executor(self._thread, self._refresh, opened)
        for look in looks:
            self._settle(*look)
            await slices.done()
        return took

    def _refresh(
        self, opened: Sequence[tuple[Followed, PartitionLog]]
    ) -> tuple[list[_Look], float]:
        """Look at these folders, in the thread; also returns its CPU seconds."""
        began = clock.thread_time()
        found: list[_Look] = []
        for each, opened_log in opened:
            try:
                opened_log.refresh(self._folders.log_start(each.topic, each.number))
                found.append((each, opened_log.view))
            except _UNREADABLE as e:
                found.append((each, _reason(e)))
        return found, clock.thread_time() - began

    async def refresh_topics(self) -> bool:
        """Look for changed topics; returns whether there are any. Raises KafkaLogError."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._folders.refresh)

    def _settle(self, each: Followed, found: LogView | str) -> None:
        """Take over the result of a look, and wake its waiters."""
        before, asked = each.view, each.asked
        each.refreshed_at = asyncio.get_running_loop().time()
        each.asked = None
        news = asked is not None
        if isinstance(found, str):
            if not each.failure:
                log.warning("partition %s-%d: %s", each.topic, each.number, found)
            news = news or not each.failure
            each.failure = found
        else:
            news = news or bool(each.failure) or found is not before
            each.failure, each.view = "", found
            if before is not None and _lacks(found, before):
                self._withdrawn(each)
        if asked is not None and not asked.done():
            asked.set_result(None)
        if news:
            self._waiters.wake((each.id,))


def _lacks(view: LogView, before: LogView) -> bool:
    """Whether records of an earlier view are gone: deleted, or truncated by a new leader."""
    return (
        view.log_start > before.log_start
        or view.log_end < before.log_end
        or view.truncations != before.truncations
    )


def _reason(error: Exception) -> str:
    return "the folder is gone" if isinstance(error, KeyError) else str(error)
