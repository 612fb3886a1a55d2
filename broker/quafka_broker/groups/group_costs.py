"""The cost of the members of a consumer or share group in the usage of its org."""

from __future__ import annotations

from collections.abc import Generator, Iterable

from quafka_broker.groups.consumer.assigning import AssigningGroup
from quafka_broker.groups.consumer.facts import TOPICS
from quafka_broker.groups.limits import GroupLimits
from quafka_broker.groups.org_usage import OrgUsage

NAME_COST = 500
"""Bytes of a name, its topic and its places in sets."""


class GroupCosts:
    """The bytes of each member and, by `TOPICS`, of their subscriptions."""

    def __init__(self, usage: OrgUsage) -> None:
        self._usage = usage
        self._costs: dict[str, int] = {}
        self._bytes = 0

    def may_grow(self, member_id: str, cost: int, limits: GroupLimits) -> bool:
        """Whether the limits allow a member of this many bytes, instead of its present bytes."""
        usage = self._usage
        before = self._costs.get(member_id)
        if before is None and usage.members >= limits.org_members:
            return False
        more = cost - (before or 0)
        return more <= 0 or (
            self._bytes + more <= limits.max_bytes and usage.member_bytes + more <= limits.org_bytes
        )

    def count(
        self, group: AssigningGroup, changed: Iterable[str], gone: Iterable[str]
    ) -> Generator[None, None, None]:
        """Bring the org's usage up to date; one step for each member."""
        for each in changed:
            member = group.members.get(each)
            if member is not None:
                self._usage.members += each not in self._costs
                self._set(each, member.cost)
                yield
        for each in gone:
            if each in self._costs:
                self._usage.members -= 1
                self._set(each, 0)
        if self._costs:
            self._set(TOPICS, group.subscriptions.cost)

    def release(self) -> None:
        """Remove all counts."""
        self._usage.members -= len(self._costs) - (TOPICS in self._costs)
        self._usage.member_bytes -= self._bytes
        self._costs, self._bytes = {}, 0

    def _set(self, each: str, cost: int) -> None:
        more = cost - self._costs.pop(each, 0)
        if cost:
            self._costs[each] = cost
        self._bytes += more
        self._usage.member_bytes += more
