"""The checker of transactions reports each anomaly by its name, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.crash.kafka_checker import Seen
from tests.crash.transaction_checker import Fate, Transaction, TransactionChecker


class History:
    """Two partitions; transaction 0 has a, b (in partition 0) and c (in 1), transaction 1 has d."""

    def __init__(self) -> None:
        self.checker = TransactionChecker()
        self.first = self.write(0, b"a", b"b", b"c")
        self.second = self.write(1, b"d")

    def write(self, number: int, *values: bytes) -> Transaction:
        begun = self.checker.begin("p", number)
        for value in values:
            self.checker.write(begun, value)
        return begun

    def end(self, *fates: Fate) -> None:
        for transaction, fate in zip((self.first, self.second), fates, strict=False):
            self.checker.change(transaction, fate)

    def committed(self, *records: tuple[int, int, bytes], by: str = "committed") -> None:
        self.checker.poll_isolated(by, [Seen(*record) for record in records], committed=True)

    def uncommitted(self, *records: tuple[int, int, bytes]) -> None:
        found = [Seen(*record) for record in records]
        self.checker.poll_isolated("uncommitted", found, committed=False)

    def problems(self) -> dict[str, int]:
        self.checker.finish_reading("committed", "uncommitted", {0: 9, 1: 9})
        return dict(self.checker.problems)


A, B, C, D = (0, 0, b"a"), (0, 1, b"b"), (1, 0, b"c"), (0, 3, b"d")


def innocent(history: History) -> None:
    """Transaction 0 is committed (its marker is at offset 2), 1 aborted."""
    history.first.sends_offset = True
    history.checker.watermarks("w", 0, 0, 2)
    history.uncommitted(A, B)
    history.end(Fate.COMMITTING)
    history.committed(A, B, C)
    history.end(Fate.COMMITTED, Fate.ABORTED)
    history.committed(A, B, by="another")
    history.uncommitted(C, D)
    history.checker.ack("p", 0, 3, b"d")
    history.checker.group_offset("p", -1)
    history.checker.group_offset("p", 1)
    history.checker.watermarks("w", 0, 5, 5)


def test_an_innocent_history() -> None:
    history = History()
    innocent(history)
    assert history.problems() == {}


@pytest.mark.parametrize("visible", [False, True])
def test_a_commit_in_doubt_is_visible_or_not(visible: bool) -> None:
    history = History()
    history.end(Fate.COMMITTING)
    history.first.sends_offset = True
    if visible:
        history.committed(A, B, C)
        history.checker.group_offset("p", 1)
    history.uncommitted(A, B, C)
    assert history.problems() == {}


@pytest.mark.parametrize("offset", [-1, 1])
def test_a_commit_in_doubt_of_an_offset_only(offset: int) -> None:
    history = History()
    only = history.write(2)
    only.sends_offset = True
    history.checker.change(only, Fate.COMMITTING)
    history.checker.group_offset("p", offset if offset < 0 else 3)
    assert history.problems() == {}


def _lost_in_part(history: History) -> None:
    history.end(Fate.COMMITTED)
    history.uncommitted(A, B, C)
    history.committed(A, C)


def _in_doubt_in_part(history: History) -> None:
    history.end(Fate.COMMITTING)
    history.uncommitted(A, B, C)
    history.committed(A, B)


def _lost(history: History) -> None:
    history.end(Fate.COMMITTED)
    history.uncommitted(A, B, C)


def _acknowledged_and_gone(history: History) -> None:
    history.checker.ack("p", 0, 0, b"a")


def _dirty(history: History) -> None:
    history.committed(A)
    history.end(Fate.COMMITTED)
    history.committed(B, C)
    history.uncommitted(A, B, C)


def _aborted(history: History) -> None:
    history.end(Fate.ABORTED, Fate.ABORTING)
    history.uncommitted(A, B, C, D)
    history.committed(D)


def _twice(history: History) -> None:
    history.uncommitted(A, (0, 7, b"a"))


def _two_at_a_place(history: History) -> None:
    history.uncommitted(A)
    history.checker.ack("p", 0, 0, b"b")


def _reordered(history: History) -> None:
    history.uncommitted((0, 0, b"b"), (0, 1, b"a"))


def _reordered_over_transactions(history: History) -> None:
    history.uncommitted((0, 0, b"d"), (0, 1, b"a"))


def _skipped(history: History) -> None:
    history.end(Fate.COMMITTED)
    history.committed(A, B, C)
    history.uncommitted(A, B, C)
    history.committed(B, by="another")


def _vanished(history: History) -> None:
    history.end(Fate.COMMITTING)
    history.committed(A, by="another")
    history.uncommitted(A, B, C)


def _only_for_committed(history: History) -> None:
    history.end(Fate.COMMITTED)
    history.committed(A, B, C)
    history.uncommitted(A, B)


def _back(history: History) -> None:
    history.uncommitted(B, A)


def _made_up(history: History) -> None:
    history.uncommitted((0, 0, b"nobody's"))


def _stable_back(history: History) -> None:
    history.checker.watermarks("w", 0, 4, 5)
    history.checker.watermarks("w", 0, 3, 5)


def _end_back(history: History) -> None:
    history.checker.watermarks("w", 0, 4, 5)
    history.checker.watermarks("w", 0, 4, 4)


def _stable_beyond(history: History) -> None:
    history.checker.watermarks("w", 0, 6, 5)


def _stuck(history: History) -> None:
    history.checker.watermarks("w", 0, 4, 5)


def _offset_back(history: History) -> None:
    history.first.sends_offset = history.second.sends_offset = True
    history.end(Fate.COMMITTING, Fate.COMMITTING)
    history.checker.group_offset("p", 2)
    history.checker.group_offset("p", 1)


def _offset_dirty(history: History) -> None:
    history.first.sends_offset = True
    history.checker.group_offset("p", 1)


def _offset_made_up(history: History) -> None:
    history.end(Fate.COMMITTED)
    history.checker.group_offset("p", 1)


def _offset_lost(history: History) -> None:
    history.first.sends_offset = True
    history.end(Fate.COMMITTED)
    history.committed(A, B, C)
    history.uncommitted(A, B, C)
    history.checker.group_offset("p", -1)


def _offset_without_records(history: History) -> None:
    history.first.sends_offset = True
    history.end(Fate.COMMITTING)
    history.uncommitted(A, B, C)
    history.checker.group_offset("p", 1)


def _zombie(history: History) -> None:
    history.checker.misbehaved("zombie", "a fenced producer was answered")


@pytest.mark.parametrize(
    ("kind", "happens"),
    [
        ("torn", _lost_in_part),
        ("torn", _in_doubt_in_part),
        ("lost transaction", _lost),
        ("lost write", _acknowledged_and_gone),
        ("dirty read", _dirty),
        ("aborted read", _aborted),
        ("duplicate", _twice),
        ("inconsistent offset", _two_at_a_place),
        ("reordered", _reordered),
        ("reordered", _reordered_over_transactions),
        ("skip", _skipped),
        ("vanished", _vanished),
        ("only committed readers see it", _only_for_committed),
        ("nonmonotonic inside a poll", _back),
        ("made up", _made_up),
        ("stable went back", _stable_back),
        ("high watermark went back", _end_back),
        ("stable beyond the end", _stable_beyond),
        ("stuck", _stuck),
        ("offset went back", _offset_back),
        ("dirty offset", _offset_dirty),
        ("made up offset", _offset_made_up),
        ("torn offset", _offset_lost),
        ("torn offset", _offset_without_records),
        ("zombie", _zombie),
    ],
)
def test_each_anomaly(kind: str, happens: Callable[[History], None]) -> None:
    history = History()
    happens(history)
    assert kind in history.problems()
