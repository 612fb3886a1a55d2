"""Histories of transactions: what read_committed readers see, and offsets that records go with."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.sim.script import RC, RU, Script


def _two_parts(outcome: str = "ok") -> Script:
    script = Script().begin("T").write("x", at=0, txn="T").write("y", at=0, txn="T", partition=1)
    return script.commit("T", outcome) if outcome else script


def _finals(script: Script, *, x: bool, y: bool) -> Script:
    script.final((0, "x"), isolation=RU).final((0, "y"), isolation=RU, partition=1)
    answer = {"high_watermark": 1, "next": 1}
    script.final(*([(0, "x")] if x else []), isolation=RC, answer=answer)
    return script.final(*([(0, "y")] if y else []), isolation=RC, partition=1, answer=answer)


ACCEPTED = {
    "committed": _finals(_two_parts(), x=True, y=True),
    "aborted": _finals(_two_parts("").abort("T"), x=False, y=False),
    "left open": _finals(_two_parts(""), x=False, y=False),
    "commit failed": _finals(_two_parts("fail"), x=False, y=False),
    "unknown and committed": _finals(_two_parts("unknown"), x=True, y=True),
    "unknown and aborted": _finals(_two_parts("unknown"), x=False, y=False),
    "unknown, and committed in the end": _finals(
        _two_parts("unknown").commit("T", "unknown").commit("T"), x=True, y=True
    ),
    "undecided and read as such": _two_parts("").read((0, "x")),
    "seen before the commit is answered": _two_parts("none").read((0, "x"), isolation=RC),
    "a commit is seen late": _two_parts().read(isolation=RC),
    "a part is deleted": (
        _two_parts()
        .do("delete_records", topic="a", partition=0, offset=1, answer={"log_start": 1})
        .final(start=1)
        .final((0, "y"), partition=1)
    ),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_correct_history_is_accepted(name: str) -> None:
    assert ACCEPTED[name].found == set()


REJECTED = {
    "aborted and seen": (_two_parts("").abort("T").read((0, "x"), isolation=RC), {"aborted seen"}),
    "never committed and seen": (
        _two_parts("").read((0, "x"), isolation=RC),
        {"aborted seen"},
    ),
    "commit failed and seen": (
        _two_parts("fail").read((0, "x"), isolation=RC),
        {"aborted seen"},
    ),
    "undecided and seen": (
        _two_parts("").read((0, "x"), isolation=RC).commit("T"),
        {"undecided seen"},
    ),
    "undecided and shared": (
        _two_parts("")
        .do(
            "share_read",
            group="g",
            member="m",
            topic="a",
            partition=0,
            isolation=RC,
            answer={"records": [[0, "x"]], "acquired": [[0, 0, 1]], "lock_s": 30},
        )
        .commit("T"),
        {"undecided seen"},
    ),
    "half": (_finals(_two_parts(), x=True, y=False), {"in part", "lost", "skipped"}),
    "committed and nothing there": (
        _finals(_two_parts(), x=False, y=False),
        {"in part", "lost", "skipped"},
    ),
    "unknown and half": (
        _finals(_two_parts("unknown"), x=True, y=False),
        {"in part", "lost", "skipped"},
    ),
    "unknown, seen, and gone": (
        _finals(_two_parts("unknown").read((0, "x"), isolation=RC), x=False, y=False),
        {"in part", "lost", "skipped"},
    ),
}


@pytest.mark.parametrize("name", REJECTED)
def test_a_wrong_history_is_rejected(name: str) -> None:
    script, expected = REJECTED[name]
    assert script.found == expected


class Copier(Script):
    """Copies of topic "in", whose records are a, b, c, to topic "out", as group "g"."""

    def __init__(self) -> None:
        """Write the records."""
        super().__init__()
        self.write("a", "b", "c", at=0, topic="in")
        self._copied = 0

    def copy(
        self, txn: str, *inputs: int, to: int, outcome: str = "ok", at: int | None = None
    ) -> Copier:
        """A transaction that copies records and moves the group's offset."""
        first = self._copied if at is None else at
        values = [f"{txn}-{offset}" for offset in inputs]
        self.begin(txn)
        given: dict[str, Any] = {"inputs": [["in", 0, offset] for offset in inputs]}
        self.write(*values, at=first, topic="out", producer=txn, txn=txn, **given)
        self.do("add_offsets", txn=txn, group="g", offsets=[["in", 0, to]])
        self.commit(txn, outcome)
        self._copied = first + len(inputs) + 1
        return self

    def ends(self, offset: int, *out: tuple[int, str]) -> Copier:
        """The final reads: the group's offset, and the visible copies."""
        partitions, found = [["in", 0]], [["in", 0, offset]]
        self.do("offset_fetch", group="g", partitions=partitions, answer={"offsets": found})
        self.final((0, "a"), (1, "b"), (2, "c"), topic="in", isolation=RC)
        self.final(*out, topic="out", isolation=RC)
        return self


_FIRST, _SECOND = ((0, "T-0"), (1, "T-1")), (3, "U-2")


@pytest.mark.parametrize(
    "script",
    [
        Copier().copy("T", 0, 1, to=2).copy("U", 2, to=3).ends(3, *_FIRST, _SECOND),
        Copier().copy("T", 0, 1, to=2, outcome="unknown").ends(2, *_FIRST),
        Copier().copy("T", 0, 1, to=2, outcome="unknown").ends(-1),
        Copier().copy("T", 0, 1, to=2, outcome="fail").ends(-1),
        Copier().copy("T", 0, 1, to=2, outcome="fail").copy("U", 0, to=1).ends(1, (3, "U-0")),
    ],
)
def test_copies_with_their_offsets_are_accepted(script: Copier) -> None:
    assert script.found - {"not read to the end"} == set()


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (  # the offset of a committed transaction is missing
            Copier().copy("T", 0, 1, to=2).ends(-1, *_FIRST),
            {"offsets and records part", "went back"},
        ),
        (  # the copies are visible, and the offset is not
            Copier().copy("T", 0, 1, to=2, outcome="unknown").ends(-1, *_FIRST),
            {"offsets and records part"},
        ),
        (  # the offset is committed, and the copies are not visible
            Copier().copy("T", 0, 1, to=2, outcome="unknown").ends(2),
            {"offsets and records part"},
        ),
        (  # the offset of an aborted transaction
            Copier().copy("T", 0, 1, to=2, outcome="fail").ends(2),
            {"offsets and records part", "never written"},
        ),
        (  # two transactions have copied one record
            Copier().copy("T", 0, 1, to=2).copy("U", 1, to=2).ends(2, *_FIRST, (3, "U-1")),
            {"copied twice"},
        ),
        (  # a record was left out
            Copier().copy("T", 0, to=1).copy("U", 2, to=3).ends(3, (0, "T-0"), (2, "U-2")),
            {"offsets and records part"},
        ),
    ],
)
def test_copies_that_part_from_their_offsets_are_rejected(
    script: Copier, expected: set[str]
) -> None:
    assert script.found - {"not read to the end"} == expected
