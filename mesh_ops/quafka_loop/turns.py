"""Bounds how many large answers are made at a time; orgs take turns."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from quafka_loop.org_queue import OrgQueue


class OpTurns:
    """The turns of ops, by request id.

    At most `most` have one, or one of each org if those are more: an org without a turn waits for
    no other org's. No op of an org is admitted while `is_full` returns True for it. Call `admit`
    when that may have changed.
    """

    def __init__(self, most: int, is_full: Callable[[int], bool]) -> None:
        self._most = most
        self._is_full = is_full
        self._taken: dict[int, int] = {}
        """The org of each op that has a turn."""
        self._orgs: Counter[int] = Counter()
        """How many turns each org has."""
        self._waiting: dict[int, tuple[int, asyncio.Future[None]]] = {}
        """The org and the turn of each op that waits."""
        self._queue: OrgQueue[int] = OrgQueue()

    def __len__(self) -> int:
        """The number of ops that have a turn or wait for one."""
        return len(self._taken) + len(self._waiting)

    async def acquire(self, request_id: int, org: int) -> None:
        """Wait for a turn. It lasts until `release`, which must follow even if this fails."""
        if org not in self._queue.orgs and self._may_take(org):
            self._take(request_id, org)  # the usual case, without a future
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = org, turn
        self._queue.add(org, request_id)
        await turn

    def release(self, request_id: int) -> None:
        """End the turn of an op that is over, or its wait for one."""
        org = self._taken.pop(request_id, None)
        if org is not None:
            self._orgs[org] -= 1
            if not self._orgs[org]:
                del self._orgs[org]
        waiting = self._waiting.pop(request_id, None)
        if waiting is not None:
            self._queue.remove(waiting[0], request_id)
        self.admit()

    def admit(self) -> None:
        """Admit as many waiting ops as the bound allows."""
        while self._waiting:
            org = next((org for org in self._queue.orgs if self._may_take(org)), None)
            if org is None:
                return
            request_id = self._queue.pop(org)
            org, turn = self._waiting.pop(request_id)
            if not turn.done():
                self._take(request_id, org)
                turn.set_result(None)

    def _may_take(self, org: int) -> bool:
        """Whether there is a turn for an op of this org."""
        return (len(self._taken) < self._most or org not in self._orgs) and not self._is_full(org)

    def _take(self, request_id: int, org: int) -> None:
        self._taken[request_id] = org
        self._orgs[org] += 1
