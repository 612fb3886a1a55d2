"""What `quafka doctor --groups` finds."""

from __future__ import annotations

from quafka_client.checks.findings import Report
from quafka_client.checks.groups import judge
from quafka_client.groups import GroupSummary, Moving


def _summary(name: str, members: int, lag: int | None, kind: str = "classic") -> GroupSummary:
    return GroupSummary(
        name, "Stable" if members else "Empty", "consumer", members, lag, None, kind
    )


def _found(*found: GroupSummary, details: tuple[Moving, ...] = ()) -> list[tuple[str, str]]:
    report = Report()
    judge(report, found, details)
    assert report.healthy
    assert {each.check for each in report.findings} == {"groups"}
    assert all(each.fix for each in report.findings if each.status == "warn")
    return [(each.status, each.message) for each in report.findings]


def test_nobody_waits() -> None:
    every = (_summary("a", 2, 100), _summary("b", 0, 0), _summary("c", 0, None, "share"))
    assert _found(*every, details=(Moving("a", 2, 0, []),)) == [
        ("ok", "3 groups, none of them stalled")
    ]


def test_groups_without_members_that_have_records_to_read() -> None:
    many = [_summary(f"g{number}", 0, number) for number in range(8)]
    (found,) = _found(*many)
    first = "g7 (7), g6 (6), g5 (5), g4 (4), g3 (3) and 2 more"
    assert found == ("warn", f"7 groups without members have records to read: {first}")
    (one,) = _found(_summary("s", 0, 1_000, "share"))
    assert one[1] == "1 group without members has records to read: s (1,000)"


def test_members_that_do_not_follow_and_groups_of_both_protocols() -> None:
    details = (Moving("a", 2, 1, ["m", "n"]), Moving("b", 3, 0, []), Moving("c", 0, 4, []))
    late, mixed = _found(_summary("a", 3, 0, "consumer"), details=details)
    assert late[1].endswith("last assignment: a (m, n)")
    assert mixed[1] == "members of both protocols: a (1 classic, 2 of KIP-848)"
