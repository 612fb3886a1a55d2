"""Histories of topics, configs, rights, snapshots and quiet periods."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.sim.script import RC, Script


def _created(**fields: Any) -> Script:
    answer = {"topic_id": "id1"}
    return Script().do("create_topic", topic="a", partitions=2, answer=answer, **fields)


def _described(script: Script, topic_id: str | None, partitions: int | None = 2) -> Script:
    answer = {"topic_id": topic_id, "partitions": partitions}
    return script.do("describe_topic", topic="a", answer=answer)


@pytest.mark.parametrize(
    "script",
    [
        _described(_created(), "id1"),
        _described(Script(), None, None),
        _described(_created().do("delete_topic", topic="a"), None, None),
        _described(_created().do("delete_topic", "unknown", topic="a"), "id1"),
        _described(Script().do("create_topic", "unknown", topic="a", partitions=2), "id7"),
        _described(Script().do("create_topic", "unknown", topic="a", partitions=2), None, None),
        _created().do("create_topic", "fail", topic="a", partitions=2, answer={"exists": True}),
        Script().do("delete_topic", "fail", topic="a", answer={"exists": False}),
        _described(_created().do("add_partitions", topic="a", partitions=5), "id1", 5),
        _described(_created().do("add_partitions", "unknown", topic="a", partitions=5), "id1"),
    ],
)
def test_topics_as_they_were_made_are_accepted(script: Script) -> None:
    assert script.found == set()


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (_described(_created(), None), {"went back"}),
        (_described(_created(), "id2"), {"never written"}),
        (_described(Script(), "id2"), {"never written"}),
        (_described(_created().do("delete_topic", topic="a"), "id1"), {"went back"}),
        (
            Script().do("create_topic", "fail", topic="a", partitions=2, answer={"exists": True}),
            {"never written"},
        ),
        (_created().do("delete_topic", "fail", topic="a", answer={"exists": False}), {"went back"}),
        (
            _described(_created().do("add_partitions", topic="a", partitions=5), "id1", 2),
            {"went back"},
        ),
    ],
)
def test_topics_that_nobody_made_so_are_rejected(script: Script, expected: set[str]) -> None:
    assert script.found == expected


def test_listings_find_the_topics_that_there_are() -> None:
    def script(*found: str) -> Script:
        made = _created().do("create_topic", "unknown", topic="b", partitions=1)
        made.do("create_topic", topic="c", partitions=1).do("delete_topic", topic="c")
        return made.do("list_topics", answer={"topics": ["other", *found]})

    assert script("a").found == script("a", "b").found == set()
    assert script("b").found == script("a", "c").found == {"went back"}


def test_configs_are_found_as_they_were_set() -> None:
    def script(found: str | None) -> Script:
        of: dict[str, Any] = {"resource": "topic:a", "name": "segment.bytes"}
        made = _created(configs={"segment.bytes": "1"}).do("alter_config", value="2", **of)
        return made.do("describe_config", answer={"value": found}, **of)

    assert script("2").found == set()
    assert script("1").found == script(None).found == {"went back"}
    assert script("3").found == {"never written"}


def _right(script: Script, allowed: bool, outcome: str = "ok") -> Script:
    return script.do(
        "rights", outcome, principal="u", resource="topic:a", right="read", allowed=allowed
    )


def _written() -> Script:
    return _right(Script(rights_s=1.0).write("x", at=0), True)


def _denied(script: Script) -> Script:
    return script.end(script.reading(principal="u"), "fail", error="denied")


@pytest.mark.parametrize(
    "script",
    [
        _written().wait(2).read((0, "x"), principal="u"),
        _right(_written(), False).read((0, "x"), principal="u"),  # within the bound
        _right(_written(), False).wait(2).read(principal="u"),
        _denied(_right(_written(), False).wait(2)),
        _denied(_written()),  # within the bound
        _denied(_right(_written().wait(2), False, "unknown").wait(2)),
        _right(_right(_written(), False), True).wait(2).read((0, "x"), principal="u"),
        _right(_written(), False, "unknown").wait(2).read((0, "x"), principal="u"),
        _right(_written(), False).wait(2).read((0, "x"), principal="v"),
    ],
)
def test_rights_that_are_kept_are_accepted(script: Script) -> None:
    assert script.found == set()


def test_a_revoked_right_is_not_used() -> None:
    script = _right(_written(), False).wait(2)
    assert script.read((0, "x"), principal="u").found == {"without right"}


def test_a_granted_right_is_not_refused() -> None:
    assert _denied(_written().wait(2)).found == {"refused"}


def test_a_parked_fetch_shows_nothing_that_is_younger_than_the_revocation() -> None:
    def script(wait_s: float) -> Script:
        made = _written()
        call = made.reading(position=1, principal="u")
        _right(made, False).wait(wait_s).write("y", at=1)
        return made.answered(call, (1, "y"))

    assert script(0).found == set()
    assert script(2).found == {"without right"}


def test_no_org_sees_records_of_another_one() -> None:
    script = Script().write("x", at=0, org="one").write("y", at=0, org="two")
    assert "foreign record" in script.read((0, "x"), (1, "y"), org="one").found


def _cut(
    script: Script, *ends: int, offsets: Any = (), scope: str = "all", name: str = "s"
) -> Script:
    given = [["a", partition, end] for partition, end in enumerate(ends)]
    answer = {"ends": given, "offsets": list(offsets)}
    return script.do("snapshot", snapshot=name, scope=scope, answer=answer)


def _two() -> Script:
    return Script().write("x", at=0).write("y", at=0, partition=1)


def _overlapping(x_in: int, y_in: int, scope: str = "all") -> Script:
    script = Script()
    call = script.call("snapshot", snapshot="s", scope=scope)
    script.write("x", at=0).write("y", at=0, partition=1)
    return script.end(call, ends=[["a", 0, x_in], ["a", 1, y_in]], offsets=[])


@pytest.mark.parametrize(
    "script",
    [
        _cut(_two(), 1, 1),
        _cut(Script(), 0, 0).write("x", at=0),
        _overlapping(0, 0),
        _overlapping(1, 0),
        _overlapping(1, 1),
        _overlapping(0, 1, "topic"),
        _cut(_two(), 1, 1, offsets=[["g", "a", 0, 1]]),
    ],
)
def test_a_cut_is_accepted(script: Script) -> None:
    assert script.found == set()


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (_cut(_two(), 1, 0), {"not a cut"}),  # y was acknowledged before
        (_overlapping(0, 1), {"not a cut"}),  # y is in, and x is older
        (_cut(Script(), 1, 0).write("x", at=0), {"not a cut"}),  # x was written after it
        (_cut(_two(), 1, 1, offsets=[["g", "a", 0, 2]]), {"offsets ahead"}),
        (_cut(_two(), 0, 1, scope="topic"), {"not a cut"}),
        (
            _cut(Script(), 0).write("x", at=0).read((0, "x"), reader="snapshot", snapshot="s"),
            {"not a cut"},
        ),
    ],
)
def test_what_is_no_cut_is_rejected(script: Script, expected: set[str]) -> None:
    assert script.found == expected


def _snapshot_of_a_transaction(x: bool, y: bool, offset: int | None = None) -> Script:
    """A snapshot of a transaction with a record in each of two partitions, and an offset."""
    script = Script().begin("T").write("x", at=0, txn="T").write("y", at=0, partition=1, txn="T")
    script.do("add_offsets", txn="T", group="g", offsets=[["in", 0, 3]])
    call = script.call("snapshot", snapshot="s")
    script.commit("T")
    offsets = [] if offset is None else [["g", "in", 0, offset]]
    script.end(call, ends=[["a", 0, 1], ["a", 1, 1]], offsets=offsets)
    given: dict[str, Any] = {"reader": "snapshot", "snapshot": "s", "isolation": RC}
    for partition, found, value in ((0, x, "x"), (1, y, "y")):
        records = [(0, value)] if found else []
        answer = {"next": len(records), "log_start": 0}
        script.read(*records, position=None, partition=partition, answer=answer, **given)
    return script


def test_a_transaction_is_in_a_snapshot_as_a_whole() -> None:
    assert _snapshot_of_a_transaction(True, True, 3).found == set()
    assert _snapshot_of_a_transaction(False, False).found == set()
    assert _snapshot_of_a_transaction(True, False, 3).found == {"in part"}
    assert _snapshot_of_a_transaction(True, True).found == {"offsets and records part"}
    assert _snapshot_of_a_transaction(False, False, 3).found == {"offsets and records part"}


def test_an_open_transaction_may_hide_a_committed_one_behind_it() -> None:
    script = Script().begin("O").write("o", at=0, txn="O", producer="o")
    script.begin("T").write("x", at=1, txn="T").write("y", at=0, partition=1, txn="T").commit("T")
    _cut(script, 2, 1)
    given: dict[str, Any] = {"reader": "snapshot", "snapshot": "s", "isolation": RC}
    script.read(position=None, answer={"next": 0, "log_start": 0}, **given)
    script.read((0, "y"), position=None, partition=1, answer={"next": 1, "log_start": 0}, **given)
    assert script.commit("O").found == set()


def _quiet(*waits: float, **client: str) -> Script:
    script = Script(progress_s=10).note("client", "c", phase="start").wait(100)
    script.note("quiet", phase="start")
    for wait in waits[:-1]:
        script.wait(wait).do("describe_topic", who="c", topic="a", answer={"topic_id": None})
    if client:
        script.note("client", "c", phase="stop")
    return script.wait(waits[-1]).note("quiet", phase="end")


def test_progress_in_a_quiet_period_is_accepted() -> None:
    assert _quiet(9, 9, 9).found == set()
    assert _quiet(9, 90, phase="stop").found == set()
    assert _quiet(5).found == set()


def test_no_progress_in_a_quiet_period_is_rejected() -> None:
    assert _quiet(11, 5).found == {"no progress"}
    assert _quiet(5, 11).found == {"no progress"}
    assert _quiet(11).found == {"no progress"}
