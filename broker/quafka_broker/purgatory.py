"""Parked fetches: who waits for which virtual topics to grow."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from quafka_broker.virtual_topics import VirtualTopicId


class Purgatory:
    """Wakes waiters when one of their virtual topics grows, goes, or the broker drains."""

    def __init__(self) -> None:
        self._waiters: dict[VirtualTopicId, set[asyncio.Future[None]]] = {}
        self._draining = False

    @property
    def draining(self) -> bool:
        """Whether nobody may wait any more."""
        return self._draining

    async def wait(self, topics: Iterable[VirtualTopicId], until: float) -> bool:
        """Wait for any of the topics; False when loop time `until` came first."""
        loop = asyncio.get_running_loop()
        if self._draining or until <= loop.time():
            return False
        woken: asyncio.Future[None] = loop.create_future()
        topics = set(topics)
        for topic in topics:
            self._waiters.setdefault(topic, set()).add(woken)
        timer = loop.call_at(until, _wake, woken)
        try:
            await woken
        finally:
            timer.cancel()
            for topic in topics:
                waiters = self._waiters[topic]
                waiters.discard(woken)
                if not waiters:
                    del self._waiters[topic]
        return loop.time() < until and not self._draining

    def wake(self, topics: Iterable[VirtualTopicId]) -> None:
        """These have grown, or are gone."""
        for topic in topics:
            for woken in self._waiters.get(topic, ()):
                _wake(woken)

    def drain(self) -> None:
        """Wake everybody, for good."""
        self._draining = True
        self.wake(list(self._waiters))


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
