"""Pages of the list of groups, and plans of moves of offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from quafka_client import groups as client_groups
from quafka_client import offset_resets
from quafka_client.cluster import ClientCluster
from quafka_client.connection import ClientConnection
from quafka_client.errors import ClientError
from quafka_client.group_offsets import Place
from quafka_client.groups import GroupListing, GroupSummary, LagByTopic, TopicLag
from quafka_client.offset_resets import GroupOffsets, OffsetMove
from quafka_client.positions import RequestedPosition
from quafka_console.data.group_lags import AllLags
from quafka_console.data.groups import BY_LAG, GroupQuery, group_page, plan_reset, reset

COUNT = 120
CLUSTER = cast("ClientCluster", None)
KINDS = ("classic", "consumer", "share")


class Groups:
    """120 groups: of each kind every third; `described`: how many of them were described."""

    def __init__(self) -> None:
        self.described = 0
        connection = cast("ClientConnection", None)
        self.listings = [
            GroupListing(f"g{n:03}", "Empty" if n % 2 else "Stable", KINDS[n % 3], "", connection)
            for n in range(COUNT)
        ]

    async def listed(self, _cluster: object) -> list[GroupListing]:
        return self.listings

    async def summaries_of(self, listings: Sequence[GroupListing]) -> list[GroupSummary]:
        self.described += len(listings)
        return [
            GroupSummary(each.group, each.state, "", 0, int(each.group[1:]), None, each.kind)
            for each in listings
        ]


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Groups:
    found = Groups()
    monkeypatch.setattr(client_groups, "listed", found.listed)
    monkeypatch.setattr(client_groups, "summaries_of", found.summaries_of)
    return found


def names(page: Any) -> list[str]:
    return [each.group for each in page.page.rows]


async def test_only_the_groups_of_the_page_are_described(groups: Groups) -> None:
    page = await group_page(CLUSTER, GroupQuery(number=2))
    assert names(page) == [f"g{n:03}" for n in range(100, 120)]
    assert groups.described == 20
    assert (page.page.total, page.page.matching, page.page.pages) == (120, 120, 3)


async def test_kind_and_search_narrow_the_list(groups: Groups) -> None:
    page = await group_page(CLUSTER, GroupQuery("G00", kind="classic"))
    assert names(page) == ["g000", "g003", "g006", "g009"]
    assert (page.page.total, page.page.matching, groups.described) == (120, 4, 4)
    assert names(await group_page(CLUSTER, GroupQuery("nothing"))) == []


async def test_the_largest_lag_comes_first(groups: Groups) -> None:
    page = await group_page(CLUSTER, GroupQuery(order=BY_LAG, kind="share", number=1, size=30))
    assert names(page) == [f"g{n:03}" for n in range(29, 0, -3)]
    assert page.is_sorted


async def test_lags_that_are_known_are_not_read_again(groups: Groups) -> None:
    lags = [LagByTopic(each, {}) for each in await groups.summaries_of(groups.listings)]
    groups.described = 0
    known = AllLags(groups.listings, lags)
    page = await group_page(CLUSTER, GroupQuery("g00", order=BY_LAG, size=2), known)
    assert names(page) == ["g009", "g008"]
    assert (page.page.total, page.page.matching, groups.described) == (120, 10, 0)


def test_the_readers_of_a_topic() -> None:
    def group(name: str, **lags: int) -> LagByTopic:
        topics = {topic: TopicLag(1, lag, None, None) for topic, lag in lags.items()}
        return LagByTopic(GroupSummary(name, "Stable", "", 1, 0, None), topics)

    lags = [group("a", t=1), group("b", u=9), group("c", t=5, u=0), group("d")]
    found = AllLags([], lags).readers("t")
    assert found is not None
    assert [each.summary.group for each in found] == ["c", "a"]
    assert AllLags([], None).readers("t") is None, "too many groups"


async def test_too_many_groups_are_not_sorted_by_lag(groups: Groups) -> None:
    groups.listings = groups.listings * 50
    page = await group_page(CLUSTER, GroupQuery(order=BY_LAG))
    assert not page.is_sorted
    assert groups.described == 50


# --- moves ----------------------------------------------------------------------------------------


class Offsets:
    """The offsets of a group: two partitions, of which the second one does not move."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: str | None = None) -> None:
        self.error = error
        self.committed: list[Mapping[Place, int]] = []
        self.moves = [OffsetMove("t", 0, 20, 50, 0, 90), OffsetMove("t", 1, 9, 9, 0, 9)]
        kept = GroupOffsets(self.fetch, self.commit, self.delete)
        monkeypatch.setattr(offset_resets, "OF_CONSUMERS", kept)

        async def offsets_of(_cluster: object, _group: str) -> GroupOffsets:
            return kept

        async def plan(*_: object) -> list[OffsetMove]:
            return self.moves

        monkeypatch.setattr(offset_resets, "offsets_of", offsets_of)
        monkeypatch.setattr(offset_resets, "plan", plan)

    async def fetch(self, _cluster: object, _group: str) -> dict[Place, int]:
        return {}

    async def commit(
        self, _cluster: object, _group: str, wanted: Mapping[Place, int]
    ) -> dict[Place, str | None]:
        self.committed.append(wanted)
        return dict.fromkeys(wanted, self.error)

    async def delete(self, *_: object) -> dict[Place, str | None]:
        raise AssertionError


async def test_a_plan_has_its_consequences_and_is_committed_as_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = Offsets(monkeypatch)
    plan = await plan_reset(CLUSTER, "g", [], RequestedPosition("end"))
    assert (plan.skipped, plan.repeated, len(plan.changes), plan.is_share) == (30, 0, 1, False)
    assert kept.committed == [], "a plan changes nothing"
    await reset(CLUSTER, plan)
    assert kept.committed == [{("t", 0): 50}]


async def test_a_refused_move_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    Offsets(monkeypatch, "the group has members; stop its consumers first")
    plan = await plan_reset(CLUSTER, "g", [], RequestedPosition("end"))
    with pytest.raises(ClientError, match="1 of 1 partitions were not moved: the group has memb"):
        await reset(CLUSTER, plan)


async def test_nothing_to_move_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    Offsets(monkeypatch).moves = []
    with pytest.raises(ClientError, match="group 'g' has no offsets; choose a topic"):
        await plan_reset(CLUSTER, "g", [], RequestedPosition("end"))
