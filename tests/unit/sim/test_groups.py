"""Histories of groups: two owners, committed offsets, share groups."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.sim.script import RU, Script

P0 = [["a", 0]]


class Group(Script):
    """Members of group "g"."""

    def gained(self, member: str, epoch: int, protocol: str = "consumer") -> Group:
        """A member gets partition a-0."""
        return self._says("gained", member, protocol=protocol, epoch=epoch, partitions=P0)

    def released(self, member: str, epoch: int = 1, **fields: Any) -> Group:
        """A member has stopped."""
        given = {"protocol": "consumer", "epoch": epoch, "partitions": P0} | fields
        return self._says("released", member, **given)

    def lost(self, member: str) -> Group:
        """A member is none any more."""
        return self._says("lost", member)

    def commits(self, member: str, epoch: int, offset: int = 5, **answer: Any) -> Group:
        """A member commits an offset."""
        offsets = [["a", 0, offset]]
        fields: dict[str, Any] = {
            "group": "g",
            "member": member,
            "epoch": epoch,
            "offsets": offsets,
        }
        self.do("offset_commit", who=member, answer=answer, **fields)
        return self

    def _says(self, op: str, member: str, **fields: Any) -> Group:
        self.note(op, member, group="g", member=member, **fields)
        return self


@pytest.mark.parametrize(
    "script",
    [
        Group().gained("A", 1).released("A").gained("B", 2).released("B").gained("A", 3),
        Group().gained("A", 1).gained("B", 2).released("A").lost("A"),
        Group().gained("A", 1).gained("B", 2).lost("A").commits("B", 2),
        Group().gained("A", 1).gained("B", 2).lost("A").gained("C", 3).lost("B").commits("A", 4),
        Group().gained("A", 1).gained("B", 2),  # A was killed
        Group().gained("A", 1).gained("B", 2).released("A", leaving=True),
        Group().gained("A", 1).note("fault", fault="pause", node="A").gained("B", 2).released("A"),
        Group().gained("A", 1, "classic").released("A").gained("B", 2, "classic"),
        Group().gained("A", 1, "classic").released("A").gained("A", 1, "classic"),
    ],
)
def test_one_owner_at_a_time_is_accepted(script: Group) -> None:
    assert script.found == set()


@pytest.mark.parametrize(
    "script",
    [
        Group().gained("A", 1, "classic").gained("B", 1, "classic"),
        Group().gained("A", 1, "classic").released("A").gained("B", 1, "classic"),
        Group().gained("A", 1).gained("B", 2).commits("A", 1),
        Group().gained("A", 1).gained("B", 2).released("A"),
        Group().gained("A", 1).gained("B", 2).gained("A", 3),
        Group().gained("A", 1).gained("B", 2).commits("A", 1).lost("A"),
    ],
)
def test_two_owners_are_rejected(script: Group) -> None:
    assert script.found == {"two owners"}


def _fetch(script: Script, offset: int) -> Script:
    answer = {"offsets": [["a", 0, offset]]}
    return script.do("offset_fetch", group="g", partitions=P0, answer=answer)


def test_a_committed_offset_is_found() -> None:
    assert _fetch(Group().commits("A", 1, 5), 5).found == set()
    assert _fetch(Group(), -1).found == set()
    assert _fetch(Group().commits("A", 1, 5).commits("A", 1, 3), 3).found == set()  # a reset


@pytest.mark.parametrize(
    ("script", "offset", "expected"),
    [
        (Group(), 5, {"never written"}),
        (Group().commits("A", 1, 5), 6, {"never written"}),
        (Group().commits("A", 1, 5), -1, {"went back"}),
        (Group().commits("A", 1, 5).commits("A", 1, 7), 5, {"went back"}),
        (Group().commits("A", 1, 5).commits("A", 1, 7, refused=P0), 7, {"never written"}),
    ],
)
def test_a_committed_offset_that_goes_back_is_rejected(
    script: Script, offset: int, expected: set[str]
) -> None:
    assert _fetch(script, offset).found == expected


def test_a_commit_without_an_answer_is_found_or_not_but_does_not_go_back() -> None:
    def script(*found: int) -> Script:
        made: Script = Group().commits("A", 1, 5)
        made.do("offset_commit", "unknown", group="g", offsets=[["a", 0, 7]])
        for offset in found:
            _fetch(made, offset)
        return made

    assert script(5).found == script(7).found == script(5, 7).found == set()
    assert script(7, 5).found == {"went back"}


def test_a_deleted_offset_is_gone() -> None:
    script = Group().commits("A", 1, 5).do("offset_delete", group="g", partitions=P0)
    assert _fetch(script, -1).found == set()
    assert _fetch(script, 5).found == {"went back"}


class Share(Script):
    """Members of a share group, whose locks last for 30 s, and ten records."""

    def __init__(self, **bounds: Any) -> None:
        """Write the records."""
        super().__init__(**bounds)
        self.write(*(f"v{n}" for n in range(10)), at=0)

    def got(self, member: str, first: int = 0, last: int = 4) -> Share:
        """A member gets records."""
        return self.gets(member, self.asks(member), first, last)

    def asks(self, member: str) -> int:
        """A member asks for records."""
        fields: dict[str, Any] = {"topic": "a", "partition": 0, "isolation": RU}
        return self.call("share_read", member, group="g", member=member, **fields)

    def gets(self, member: str, call: int, first: int = 0, last: int = 4) -> Share:
        """A member is answered."""
        records = [[offset, f"v{offset}"] for offset in range(first, last + 1)]
        self.end(call, records=records, acquired=[[first, last, 1]], lock_s=30)
        return self

    def says(self, member: str, how: str, outcome: str = "ok", first: int = 0) -> Share:
        """A member acknowledges records."""
        fields: dict[str, Any] = {"topic": "a", "partition": 0, "ranges": [[first, 4, how]]}
        self.do("share_ack", outcome, who=member, group="g", member=member, **fields)
        return self

    def after(self, seconds: float) -> Share:
        """Let time pass."""
        self.wait(seconds)
        return self

    def ends(self, member: str) -> Share:
        """A member's session ends."""
        self.note("share_end", member, group="g", member=member)
        return self

    def killed(self) -> Share:
        """A broker is killed."""
        self.note("fault", fault="kill", node="broker")
        return self


def _late_above_the_start() -> Share:
    """A's acknowledgement is late, and the first record is with C, or is available."""
    script = Share().got("C", 0, 0).got("A", 1, 4).after(31).got("B", 1, 4)
    return script.says("B", "accept", first=1).says("A", "accept", first=1)


@pytest.mark.parametrize(
    "script",
    [
        Share().got("A").says("A", "accept").got("B", 5, 9),
        Share().got("A").says("A", "release").got("B"),
        Share().got("A").says("A", "release", "unknown").got("B"),
        Share().got("A").says("A", "accept", "unknown").got("B"),
        Share().got("A").says("A", "accept", "fail").after(31).got("B"),
        Share().got("A").after(31).got("B").says("B", "accept"),
        Share().got("A").after(31).got("B").says("B", "accept").says("A", "accept"),
        Share().got("A").ends("A").got("B"),
        Share().got("A").killed().got("B"),
        Share(moves_s=12).got("A").after(20).got("B"),  # the shard may have moved before B came
        Share().got("A").got("A"),  # its answer was lost
        Share().got("A").says("A", "accept", "unknown").says("A", "accept"),
    ],
)
def test_a_share_group_that_keeps_its_promises_is_accepted(script: Share) -> None:
    assert script.found == set()


def _asked_before() -> Share:
    script = Share()
    call = script.asks("B")
    return script.got("A").gets("B", call)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (Share().got("A").says("A", "accept").after(40).got("A"), {"delivered again"}),
        (Share().got("A").says("A", "reject").got("B", 2, 2), {"delivered again"}),
        (Share().got("A").says("A", "accept").killed().got("B"), {"delivered again"}),
        (Share().got("A").got("B"), {"two members"}),
        (Share(moves_s=12).after(13).got("A").got("B"), {"two members"}),
        (Share().got("A").after(29).got("B", 4, 6), {"two members"}),
        (Share().got("A").says("A", "accept", "fail").got("B"), {"two members"}),
        (_asked_before(), {"two members"}),
        (_late_above_the_start().got("D", 0, 0), {"finished twice"}),
    ],
)
def test_a_share_group_that_breaks_its_promises_is_rejected(
    script: Share, expected: set[str]
) -> None:
    assert script.found == expected
