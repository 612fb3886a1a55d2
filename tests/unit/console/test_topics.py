"""Topics: totals, and what a change of configs would change."""

from __future__ import annotations

from quafka_client.configs import Config
from quafka_client.topic_bounds import TopicBounds
from quafka_console.data.topics import ConfigEdit, TopicTotals, changes_of, totals_of


def config(name: str, value: str, source: str = "topic") -> Config:
    return Config(name, value, source, read_only=False, sensitive=False, documentation=None)


def test_only_what_differs_is_a_change() -> None:
    known = [
        config("retention.ms", "1"), config("cleanup.policy", "delete", "default"),
        config("segment.ms", "5"),
    ]  # fmt: skip
    assert changes_of(known, {"retention.ms": "1"}) == []
    assert changes_of(known, {"cleanup.policy": None}) == [], "it has its default"
    assert changes_of(known, {"retention.ms": "2", "segment.ms": None}) == [
        ConfigEdit("retention.ms", "1", "2"),
        ConfigEdit("segment.ms", "5", None),
    ]


def bounds(at: float, ends: dict[tuple[str, int], int], id_: bytes = b"1") -> TopicBounds:
    """Topics whose partitions begin at 10, with 100 bytes each."""
    ids = dict.fromkeys({topic for topic, _ in ends}, id_)
    return TopicBounds(at, ids, dict.fromkeys(ends, 10), ends, dict.fromkeys(ends, 100))


def test_totals_and_the_skew_of_the_largest_partition() -> None:
    ends = {("t", 0): 40, ("t", 1): 10, ("t", 2): 10, ("even", 0): 20, ("even", 1): 20,
            ("empty", 0): 10}  # fmt: skip
    assert totals_of(bounds(0.0, ends), set()) == {
        "t": TopicTotals(30, None, 300, 3.0),
        "even": TopicTotals(20, None, 200, 1.0),
        "empty": TopicTotals(0, None, 100, None),
    }
    assert totals_of(bounds(0.0, ends), {"t"})["t"].records is None, "offsets have gaps"


def test_the_rate_is_the_growth_of_end_offsets_of_the_same_topic() -> None:
    def rate(at: float, end: int, id_: bytes) -> float | None:
        known = bounds(at, {("grows", 0): end, ("grows", 1): 5}, id_)
        return totals_of(known, set())["grows"].rate

    assert rate(100.0, 50, b"a") is None
    assert rate(110.0, 90, b"a") == 4
    assert rate(110.0, 1_000, b"b") is None, "of another org"
    assert rate(120.0, 90, b"a") == 2
