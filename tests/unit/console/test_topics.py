"""Topics: what a change of configs would change, skew, and records."""

from __future__ import annotations

from quafka_client.configs import Config
from quafka_client.topics import PartitionDetails, TopicDetails
from quafka_console.data.topics import ConfigEdit, changes_of, records_of, skew_of


def config(name: str, value: str, source: str = "topic") -> Config:
    return Config(name, value, source, read_only=False, sensitive=False, documentation=None)


def topic(*counts: int) -> TopicDetails:
    parts = [PartitionDetails(n, 0, [0], [0], 10, 10 + c, c) for n, c in enumerate(counts)]
    return TopicDetails("t", None, None, None, None, False, parts, [], [])


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


def test_skew_is_the_largest_partition_by_the_mean() -> None:
    assert skew_of(topic(0, 0)) is None
    assert skew_of(topic(10, 10)) == 1
    assert skew_of(topic(30, 0, 0)) == 3
    assert records_of(topic(3, 4)) == 7
