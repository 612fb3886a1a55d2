"""Groups of all kinds: a page of a list, one group, and moves of its offsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quafka_client import groups, offset_resets
from quafka_client.cluster import ClientCluster
from quafka_client.errors import ClientError
from quafka_client.groups import GroupListing, GroupSummary
from quafka_client.offset_resets import OF_SHARES, GroupOffsets, OffsetMove
from quafka_client.positions import RequestedPosition
from quafka_console.data.group_lags import MOST_GROUPS, AllLags
from quafka_console.data.paging import PAGE_ROWS, PageOf, page_of

BY_NAME, BY_LAG = "name", "lag"
SHARE = "share"


@dataclass(frozen=True, slots=True)
class GroupQuery:
    """A view of the list. Empty `kind`: any. `order`: BY_NAME, or BY_LAG (most first)."""

    search: str = ""
    kind: str = ""
    order: str = BY_NAME
    number: int = 0
    size: int = PAGE_ROWS


@dataclass(frozen=True, slots=True)
class GroupPage:
    """A page of groups."""

    page: PageOf[GroupSummary]
    is_sorted: bool = True
    """False: there are too many groups to be sorted by lag; they are sorted by name."""


async def group_page(
    cluster: ClientCluster, query: GroupQuery, known: AllLags | None = None
) -> GroupPage:
    """A page of the groups that the user may describe. Raises ClientError.

    By name, only the groups of the page are described; by lag, all that match, unless `known` has
    their lag.
    """
    every = await groups.listed(cluster) if known is None else known.listed
    chosen = [each for each in every if query.kind in ("", each.kind)]
    found = page_of(chosen, query.search, lambda each: (each.group,), size=max(1, len(chosen)))
    matching: Sequence[GroupListing] = found.rows
    by_lag = query.order == BY_LAG and len(matching) <= MOST_GROUPS
    if by_lag:
        described = await _described(matching, known)
        described.sort(key=lambda each: (-(-1 if each.lag is None else each.lag), each.group))
        page = page_of(described, number=query.number, size=query.size, total=len(every))
    else:
        names = page_of(matching, number=query.number, size=query.size, total=len(every))
        page = names.with_rows(await groups.summaries_of(names.rows))
    is_sorted = by_lag or query.order != BY_LAG
    return GroupPage(page, is_sorted)


async def _described(listings: Sequence[GroupListing], known: AllLags | None) -> list[GroupSummary]:
    if known is None or known.lags is None:
        return await groups.summaries_of(listings)
    names = {each.group for each in listings}
    return [each.summary for each in known.lags if each.summary.group in names]


# --- moves of offsets -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """Where a group would continue, and the consequences: records that it would not read, and
    records that it would read again."""

    group: str
    is_share: bool
    moves: Sequence[OffsetMove]

    @property
    def skipped(self) -> int:
        """Offsets that the group has not read and would not read."""
        return sum(each.skipped for each in self.moves)

    @property
    def repeated(self) -> int:
        """Offsets that the group has read and would read again."""
        return sum(each.repeated for each in self.moves)

    @property
    def changes(self) -> list[OffsetMove]:
        """The moves that change something."""
        return [each for each in self.moves if each.before != each.after]


async def plan_reset(
    cluster: ClientCluster,
    group: str,
    topics: Sequence[tuple[str, Sequence[int] | None]],
    position: RequestedPosition,
) -> ResetPlan:
    """What a move of a group's offsets would do; changes nothing.

    Args:
        topics: with some of their partitions (None: all); empty: those with offsets of the group.

    Raises:
        ClientError: also if there is nothing to move.
    """
    of = await offset_resets.offsets_of(cluster, group)
    before = await of.fetch(cluster, group)
    moves = await offset_resets.plan(cluster, topics, position, before)
    if not moves:
        raise ClientError(f"group {group!r} has no offsets; choose a topic")
    return ResetPlan(group, of is OF_SHARES, moves)


async def reset(cluster: ClientCluster, plan: ResetPlan) -> None:
    """Move a group's offsets as planned.

    Raises:
        ClientError: also if some partitions were not moved.
    """
    of: GroupOffsets = OF_SHARES if plan.is_share else offset_resets.OF_CONSUMERS
    wanted = {(each.topic, each.partition): each.after for each in plan.changes}
    if not wanted:
        return
    errors = [error for error in (await of.commit(cluster, plan.group, wanted)).values() if error]
    if errors:
        reasons = "; ".join(sorted(set(errors)))
        raise ClientError(f"{len(errors)} of {len(wanted)} partitions were not moved: {reasons}")


async def delete(cluster: ClientCluster, group: str) -> None:
    """Delete a group and its offsets. Raises ClientError."""
    error = (await groups.delete(cluster, [group]))[group]
    if error:
        raise ClientError(error)
