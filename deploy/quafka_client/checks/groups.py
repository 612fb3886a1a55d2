"""Checks of groups of all types that are behind or stalled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from quafka_client.checks.findings import Report
from quafka_client.cluster import ClientCluster
from quafka_client.groups import GroupSummary, Moving, listed, moving, summaries_of

_MOST_NAMES = 5
_MOST_GROUPS = 500
_CONSUMER = "consumer"


async def check_groups(report: Report, cluster: ClientCluster, most: int | None = None) -> None:
    """Check the groups that the client may describe, at most `most`. Raises ClientError."""
    every = (await listed(cluster))[:most]
    consumers = [each for each in every if each.kind == _CONSUMER][:_MOST_GROUPS]
    judge(report, await summaries_of(every), await moving(consumers))


def judge(report: Report, found: Sequence[GroupSummary], details: Sequence[Moving]) -> None:
    """Add findings about groups; `moving` has details of KIP-848 groups."""
    left = [each for each in found if not each.members and each.lag]
    if left:
        left.sort(key=lambda each: -(each.lag or 0))
        report.warn(
            "groups",
            f"{_count(len(left), 'group')} without members "
            f"{'has' if len(left) == 1 else 'have'} records to read: "
            f"{_names(f'{each.group} ({each.lag:,})' for each in left)}",
            "start their consumers; unused groups can be deleted (`quafka groups delete`)",
        )
    late = [each for each in details if each.late]
    if late:
        report.warn(
            "groups",
            f"members have not taken up their group's last assignment: "
            f"{_names(f'{each.group} ({_names(each.late)})' for each in late)}",
            "if this lasts, a member is busy between two polls and does not give up partitions; "
            "it is removed after its max.poll.interval.ms",
        )
    mixed = [each for each in details if each.classic and each.consumers]
    if mixed:
        report.warn(
            "groups",
            "members of both protocols: "
            + _names(
                f"{each.group} ({each.classic} classic, {each.consumers} of KIP-848)"
                for each in mixed
            ),
            "restart the classic ones with group.protocol=consumer, or the others without",
        )
    if not (left or late or mixed):
        report.ok("groups", f"{_count(len(found), 'group')}, none of them stalled")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _names(found: Iterable[str]) -> str:
    every = list(found)
    more = len(every) - _MOST_NAMES
    return ", ".join(every[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
