"""The groups of an org: which broker coordinates which, and what concerns several of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from quafka_gateway.cluster.broker_link import UnavailableError
from quafka_gateway.cluster.cluster import Cluster
from quafka_gateway.cluster.group_coordinator import GroupCoordinator
from quafka_gateway.cluster.spread import grouped, spread
from quafka_loop.slices import listed
from quafka_mesh_ops.ops.base import Op, R
from quafka_mesh_ops.ops.groups import DeleteGroups
from quafka_mesh_ops.ops.lag import GroupLag, GroupLagResp, LagOfGroup
from quafka_mesh_ops.shards import Hashed
from quafka_telemetry.tracing import TraceContext

_PATTERNS_AT_ONCE = 4
_GROUPS_AT_ONCE = 500

T = TypeVar("T")


class Groups:
    """The coordinators of an org's groups."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.matching = asyncio.Semaphore(_PATTERNS_AT_ONCE)
        """Held while a member's pattern is matched, which takes all topics and up to a MiB."""
        numbers = cluster.routes.coordinators(Hashed.GROUP)
        self._coordinators = {number: GroupCoordinator(cluster, number) for number in numbers}

    def of(self, group: str) -> GroupCoordinator:
        """The coordinator of a group."""
        return self._coordinators[self._cluster.routes.coordinator_of_group(group)]

    def hurry(self) -> None:
        """Send the held heartbeats now."""
        for coordinator in self._coordinators.values():
            coordinator.hurry()

    async def call_all(self, op: Op[R], trace: TraceContext | None) -> list[R]:
        """Send an op to all coordinators.

        Raises:
            UnavailableError: one does not answer, so a list would be incomplete.
        """
        calls = (each.call(op, trace) for each in self._coordinators.values())
        return await asyncio.gather(*calls)

    async def about(
        self,
        groups: Sequence[str],
        call: Callable[[GroupCoordinator, list[str]], Awaitable[list[T]]],
        failed: Callable[[str, int], T],
    ) -> list[T]:
        """Ask each coordinator about its groups; the answers in the order of the groups.

        `failed` makes an answer from the name and the error code if `call` raises
        UnavailableError.
        """

        async def ask(coordinator: GroupCoordinator, some: list[str]) -> list[T]:
            try:
                return await call(coordinator, some)
            except UnavailableError as e:
                return await listed(failed(name, e.code) for name in some)

        if len(self._coordinators) == 1 and groups:
            (only,) = self._coordinators.values()
            return await ask(only, list(groups))
        found: list[T] = []
        for at in range(0, len(groups), _GROUPS_AT_ONCE):  # clients may name any number
            some = groups[at : at + _GROUPS_AT_ONCE]

            async def answers(number: int, its: list[int], some: Sequence[str] = some) -> list[T]:
                return await ask(self._coordinators[number], [some[place] for place in its])

            numbers = map(self._cluster.routes.coordinator_of_group, some)
            found += await spread(grouped(numbers), answers)
        return found

    async def delete(self, groups: Sequence[str], trace: TraceContext | None) -> list[int]:
        """Delete groups, durably; one error code for each."""

        async def call(coordinator: GroupCoordinator, its: list[str]) -> list[int]:
            return (await coordinator.call(DeleteGroups(its), trace)).groups

        return await self.about(groups, call, lambda _name, code: code)

    async def lag(self, groups: Sequence[str], trace: TraceContext | None) -> GroupLagResp:
        """How far groups lag. A topic at an unavailable broker has an offset and no lag."""
        now_ms = 0

        async def call(coordinator: GroupCoordinator, its: list[str]) -> list[LagOfGroup]:
            nonlocal now_ms
            answer = await coordinator.group_lag(GroupLag(its), trace)
            now_ms = max(now_ms, answer.now_ms)
            return answer.groups

        found = await self.about(groups, call, LagOfGroup)
        return GroupLagResp(now_ms, found)
