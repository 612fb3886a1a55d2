"""The groups of an org: which broker coordinates which, and what concerns several of them."""

from __future__ import annotations

import asyncio

from quafka_gateway.cluster.cluster import Cluster, RouteBy, Send
from quafka_gateway.cluster.group_coordinator import GroupCoordinator
from quafka_mesh_ops.ops.base import Op, R
from quafka_mesh_ops.ops.lag import GroupLag, GroupLagResp, LagOfGroup
from quafka_mesh_ops.shards import Hashed
from quafka_telemetry.tracing import TraceContext

_PATTERNS_AT_ONCE = 4


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
            BrokerUnavailableError: one does not answer, so a list would be incomplete.
        """
        calls = (each.call(op, trace) for each in self._coordinators.values())
        return await asyncio.gather(*calls)

    async def lag(self, groups: list[str], trace: TraceContext | None) -> GroupLagResp:
        """How far groups lag. A topic at an unavailable broker has an offset and no lag."""
        now_ms = 0

        async def call(_send: Send, its: list[str]) -> list[LagOfGroup]:
            nonlocal now_ms
            answer = await self.of(its[0]).group_lag(GroupLag(its), trace)
            now_ms = max(now_ms, answer.now_ms)
            return answer.groups

        def failed(group: str, code: int, _text: str) -> LagOfGroup:
            return LagOfGroup(group, code)

        found = await self._cluster.ask(RouteBy.GROUP, groups, call, failed, trace)
        return GroupLagResp(now_ms, found)
