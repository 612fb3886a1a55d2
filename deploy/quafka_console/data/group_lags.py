"""The lag of all groups, which several pages share: it takes a request for each hundred groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quafka_client import groups
from quafka_client.cluster import ClientCluster
from quafka_client.groups import GroupListing, LagByTopic
from quafka_console.data.recent import Recent, whose

MOST_GROUPS = 5_000
_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class AllLags:
    """All groups that a user may describe, by name; with their lag if there are not too many.

    `lags`: None: there are more than MOST_GROUPS.
    """

    listed: Sequence[GroupListing]
    lags: Sequence[LagByTopic] | None

    def readers(self, topic: str) -> list[LagByTopic] | None:
        """The groups that read a topic or have offsets in it, largest lag first; None: unknown."""
        if self.lags is None:
            return None
        found = [each for each in self.lags if topic in each.topics]
        return sorted(found, key=lambda each: -(each.topics[topic].lag or 0))


class GroupLags:
    """The lag of all groups, by sign-in, at most five seconds old."""

    def __init__(self) -> None:
        self._recent = Recent[AllLags](_SECONDS)

    async def read(self, cluster: ClientCluster) -> AllLags:
        """The groups that this user may describe. Raises ClientError."""
        return await self._recent.read(whose(cluster), lambda: _read(cluster))


async def _read(cluster: ClientCluster) -> AllLags:
    listed = await groups.listed(cluster)
    return AllLags(listed, await groups.lags_of(listed) if len(listed) <= MOST_GROUPS else None)
