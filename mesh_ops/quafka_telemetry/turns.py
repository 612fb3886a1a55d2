"""Bounds how many large answers of a connection are made at a time; orgs take turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from quafka_telemetry.org_queue import OrgQueue


class Turns:
    """The turns of one connection's ops, by request id.

    No op is admitted while `is_full` returns True. Call `admit` when that may have changed.
    """

    def __init__(self, most: int, is_full: Callable[[], bool]) -> None:
        self._most = most
        self._is_full = is_full
        self._taken: set[int] = set()
        self._waiting: dict[int, tuple[int, asyncio.Future[None]]] = {}
        """The org and the turn of each op that waits."""
        self._queue: OrgQueue[int] = OrgQueue()

    def __len__(self) -> int:
        """The number of ops that have a turn or wait for one."""
        return len(self._taken) + len(self._waiting)

    async def acquire(self, request_id: int, org: int) -> None:
        """Wait for a turn. It lasts until `release`, which must follow even if this fails."""
        if not self._waiting and len(self._taken) < self._most and not self._is_full():
            self._taken.add(request_id)  # the usual case, without a future
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = org, turn
        self._queue.add(org, request_id)
        await turn

    def release(self, request_id: int) -> None:
        """End the turn of an op that is over, or its wait for one."""
        self._taken.discard(request_id)
        waiting = self._waiting.pop(request_id, None)
        if waiting is not None:
            self._queue.remove(waiting[0], request_id)
        self.admit()

    def admit(self) -> None:
        """Admit as many waiting ops as the bound allows."""
        while self._waiting and len(self._taken) < self._most and not self._is_full():
            request_id = self._queue.pop()
            _, turn = self._waiting.pop(request_id)
            if not turn.done():
                self._taken.add(request_id)
                turn.set_result(None)
