"""The checker of `make crash` reports each anomaly by its name, and nothing else."""

from __future__ import annotations

import pytest

from tests.crash.kafka_checker import Checker, Seen

A, B, C = b"a-0", b"a-1", b"a-2"


def judged(*reports: tuple[str, int, int, bytes] | list[tuple[int, int, bytes]]) -> dict[str, int]:
    """Tuples are acknowledgements (producer, partition, offset, value), lists are polls."""
    checker = Checker()
    for value in (A, B, C):
        checker.send(value)
    for report in reports:
        if isinstance(report, list):
            checker.poll("reader", [Seen(*record) for record in report])
        else:
            checker.ack(*report)
    checker.finish({0: 2})
    return dict(checker.problems)


def test_an_innocent_history() -> None:
    assert judged(("p", 0, 0, A), [(0, 0, A)], ("p", 0, 1, B), [(0, 1, B), (1, 0, C)]) == {}


def test_a_record_acknowledged_without_its_offset_must_be_there() -> None:
    checker = Checker()
    checker.send(A)
    checker.ack_somewhere(0, A)
    checker.finish({0: 2})
    assert dict(checker.problems) == {"lost write": 1}


@pytest.mark.parametrize(
    ("kind", "reports"),
    [
        ("lost write", [("p", 0, 0, A)]),
        ("unseen", [("p", 0, 7, A)]),
        ("duplicate", [[(0, 0, A), (0, 1, A)]]),
        ("duplicate", [("p", 0, 1, A), [(0, 0, A)]]),
        ("inconsistent offset", [("p", 0, 0, A), [(0, 0, B)]]),
        ("nonmonotonic send", [("p", 0, 1, A), ("p", 0, 0, B)]),
        ("skip inside a poll", [[(0, 0, A), (0, 2, C)]]),
        ("skip between polls", [[(0, 0, A)], [(0, 2, C)]]),
        ("nonmonotonic inside a poll", [[(0, 0, A), (0, 1, B), (0, 0, A)]]),
        ("nonmonotonic between polls", [[(0, 0, A), (0, 1, B)], [(0, 0, A)]]),
        ("made up", [[(0, 0, b"nobody's")]]),
    ],
)
def test_each_anomaly(kind: str, reports: list[object]) -> None:
    assert kind in judged(*reports)  # type: ignore[arg-type]
