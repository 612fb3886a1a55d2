"""Porcupine decides whether metadata and committed offsets are linearisable, one key at a time."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.property.sim.tiny_kafka import TinyKafka
from tests.sim.porcupine.check import check
from tests.support.go import go_porcupine
from tests.unit.sim.script import Script

pytestmark = [pytest.mark.long, pytest.mark.needs("go", fetch=go_porcupine)]


def _created(**fields: Any) -> Script:
    answer = {"topic_id": "id1"}
    return Script().do("create_topic", topic="a", partitions=2, answer=answer, **fields)


def _described(script: Script, topic_id: str | None, partitions: int | None = 2) -> Script:
    answer = {"topic_id": topic_id, "partitions": partitions}
    return script.do("describe_topic", topic="a", answer=answer)


def _commit(script: Script, offset: int, outcome: str = "ok", **answer: Any) -> Script:
    offsets = [["a", 0, offset]]
    return script.do("offset_commit", outcome, group="g", offsets=offsets, answer=answer)


def _found(script: Script, *offsets: int) -> Script:
    for offset in offsets:
        answer = {"offsets": [["a", 0, offset]]}
        script.do("offset_fetch", group="g", partitions=[["a", 0]], answer=answer)
    return script


def _config(script: Script, found: str | None) -> Script:
    of: dict[str, Any] = {"resource": "topic:a", "name": "retention.ms"}
    script.do("alter_config", value="7", **of)
    return script.do("describe_config", answer={"value": found}, **of)


def _two_unknown(*found: int) -> Script:
    """Two commits without an answer, of which each may take effect at any time."""
    script = _commit(_commit(Script(), 5, "unknown"), 7, "unknown")
    return _found(script, *found)


def _transaction(end: str, offset: int) -> Script:
    script = Script().begin("T")
    script.do("add_offsets", txn="T", group="g", offsets=[["a", 0, 9]])
    return _found(script.do(end, txn="T"), offset)


LINEARIZABLE = {
    "a topic": _described(_created(), "id1"),
    "no topic": _described(Script(), None, None),
    "a topic twice": _described(
        _created().do("delete_topic", topic="a").do("create_topic", topic="a", partitions=1),
        "id2",
        1,
    ),
    "a topic of an unknown id": _described(
        _described(Script().do("create_topic", "unknown", topic="a", partitions=2), "id7"), "id7"
    ),
    "it existed": _created().do(
        "create_topic", "fail", topic="a", partitions=2, answer={"exists": True}
    ),
    "a listing": _created().do("list_topics", answer={"topics": ["a", "b"]}),
    "partitions": _described(_created().do("add_partitions", topic="a", partitions=3), "id1", 3),
    "a config": _config(_created(configs={"retention.ms": "5"}), "7"),
    "offsets": _found(_commit(_found(_commit(Script(), 5), 5), 7), 7, 7),
    "a large offset": _found(_commit(Script(), 10_000_000), 10_000_000),
    "a refused offset": _found(_commit(_commit(Script(), 5), 7, refused=[["a", 0]]), 5),
    "one unknown offset": _two_unknown(-1, 7),
    "both unknown offsets": _two_unknown(7, 5),
    "offsets of a transaction": _transaction("commit", 9),
    "offsets of an aborted one": _transaction("abort", -1),
}
NOT = {
    "a topic that is gone": _described(_created(), None, None),
    "a topic that nobody made": _described(Script(), "id1"),
    "a topic that was deleted": _described(_created().do("delete_topic", topic="a"), "id1"),
    "a topic of two unknown ids": _described(
        _described(Script().do("create_topic", "unknown", topic="a", partitions=2), "id7"), "id8"
    ),
    "made twice": _created().do("create_topic", topic="a", partitions=2),
    "it did not exist": _created().do("delete_topic", "fail", topic="a", answer={"exists": False}),
    "a listing": _created().do("list_topics", answer={"topics": ["b"]}),
    "partitions": _described(_created().do("add_partitions", topic="a", partitions=3), "id1", 2),
    "a config": _config(_created(configs={"retention.ms": "5"}), "5"),
    "an offset that goes back": _found(_commit(_commit(Script(), 5), 7), 5),
    "an offset of nobody": _found(_commit(Script(), 5), 6),
    "there and back": _two_unknown(7, 5, 7),  # which only a search finds
    "offsets of a transaction": _transaction("commit", -1),
    "offsets of an aborted one": _transaction("abort", 9),
}


@pytest.mark.parametrize("name", LINEARIZABLE)
def test_a_linearizable_history_is_accepted(name: str) -> None:
    assert check(LINEARIZABLE[name].history.events) == []


@pytest.mark.parametrize("name", NOT)
def test_another_one_is_rejected(name: str) -> None:
    found = check(NOT[name].history.events)
    assert {violation.name for violation in found} == {"not linearizable"}
    assert found[0].events


def test_histories_of_a_correct_system_are_linearizable() -> None:
    for seed in range(20):
        assert check(TinyKafka(random.Random(seed), 2000).events) == [], seed
