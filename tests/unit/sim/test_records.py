"""Histories of records: lost, doubled, reordered, invented, at two offsets, stale."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.sim.script import RC, RU, Script


def _written() -> Script:
    return Script().write("x", "y", at=0).write("z", at=2)


ALL = ((0, "x"), (1, "y"), (2, "z"))

ACCEPTED = {
    "all is read": _written().read(*ALL).final(*ALL),
    "nobody reads": _written(),
    "a read by parts": _written().read(ALL[0]).read(*ALL[1:], position=1).final(*ALL),
    "unknown and there": Script().write("x", outcome="unknown").final((0, "x")),
    "unknown and not there": Script().write("x", outcome="unknown").final(),
    "no outcome": Script().write("x", outcome="none").read((0, "x")),
    "failed": Script().write("x", outcome="fail").write("y", at=0).final((0, "y")),
    "acknowledged without its offset": Script().write("x").final((0, "x")),
    "sent again": (
        Script()
        .write("x", outcome="unknown", producer="p1")
        .write("x", at=1, producer="p2")
        .final((0, "x"), (1, "x"))
    ),
    "two producers in any order": (
        Script()
        .write("x", at=1, producer="p")
        .write("y", at=0, producer="q")
        .final((0, "y"), (1, "x"))
    ),
    "another epoch": Script().write("x", at=1, epoch=1).write("y", at=0, epoch=0),
    "deleted": (
        _written()
        .do("delete_records", topic="a", partition=0, offset=2, answer={"log_start": 2})
        .final(ALL[2], start=2)
    ),
    "all deleted": (
        _written()
        .do("delete_records", topic="a", partition=0, offset=-1, answer={"log_start": 3})
        .final(start=3)
    ),
    "expired": (
        Script()
        .do("create_topic", topic="a", partitions=1, configs={"retention.ms": "1000"})
        .write("x", "y", at=0)
        .final((1, "y"), start=1)
    ),
    "compacted": (
        Script()
        .do("create_topic", topic="a", partitions=1, configs={"cleanup.policy": "compact"})
        .write("x", "y", "z", at=0, keys=["k", "l", "k"])
        .read((0, "x"))
        .final((1, "y"), (2, "z"))
    ),
    "compacted with an aborted transaction": (
        Script()
        .do("create_topic", topic="a", partitions=1, configs={"cleanup.policy": "compact"})
        .write("x", at=0, keys=["k"])
        .begin("T")
        .write("y", at=1, keys=["l"], txn="T")
        .abort("T")
        .final((0, "x"))
    ),
    "the same topic name in two orgs": (
        Script()
        .write("x", at=0, org="one")
        .write("y", at=0, org="two")
        .read((0, "x"), org="one")
        .read((0, "y"), org="two")
    ),
    "a power cut where that may lose": (
        Script(durable=False).write("x", at=0).note("fault", fault="power", node="b").final()
    ),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_correct_history_is_accepted(name: str) -> None:
    assert ACCEPTED[name].found == set()


REJECTED = {
    "lost": (_written().final(*ALL[:2]), {"lost"}),
    "lost in the middle": (_written().final(ALL[0], ALL[2]), {"lost", "skipped"}),
    "lost after it was read": (
        Script().write("x", outcome="unknown").read((0, "x")).final(),
        {"lost"},
    ),
    "lost without an offset": (Script().write("x").final(), {"lost"}),
    "lost though a node was killed": (
        _written().note("fault", fault="power", node="b").final(*ALL[:2]),
        {"lost"},
    ),
    "the last of a key is lost": (
        Script()
        .do("create_topic", topic="a", partitions=1, configs={"cleanup.policy": "compact"})
        .write("x", "y", at=0, keys=["k", "k"])
        .final((0, "x")),
        {"lost"},
    ),
    "a committed record of a compacted topic is lost": (
        Script()
        .do("create_topic", topic="a", partitions=1, configs={"cleanup.policy": "compact"})
        .begin("T")
        .write("y", at=0, keys=["l"], txn="T")
        .commit("T")
        .final(),
        {"lost"},
    ),
    "no final read of a partition": (
        _written().write("w", at=0, partition=1).final(*ALL),
        {"not read to the end"},
    ),
    "a final read that stops": (
        _written().final(*ALL, answer={"high_watermark": 9}),
        {"not read to the end"},
    ),
    "skipped": (_written().read(ALL[0], ALL[2]).final(*ALL), {"skipped"}),
    "skipped before the next position": (
        _written().read(ALL[0], answer={"next": 3}),
        {"skipped"},
    ),
    "doubled": (Script().write("x", at=0).final((0, "x"), (1, "x")), {"doubled"}),
    "doubled by a retry that failed": (
        Script().write("x", outcome="unknown").write("x", outcome="fail").final((0, "x"), (1, "x")),
        {"doubled"},
    ),
    "reordered": (Script().write("x", at=1).write("y", at=0), {"reordered"}),
    "reordered in a batch": (
        Script().write("x", "y", outcome="unknown").final((0, "y"), (1, "x")),
        {"reordered"},
    ),
    "invented": (_written().read((0, "x"), (1, "y"), (2, "z"), (3, "w")), {"invented"}),
    "in another partition": (_written().read((0, "x"), partition=1), {"invented", "doubled"}),
    "before it was written": (Script().read((0, "x")).write("x", at=0), {"invented"}),
    "failed and there": (
        Script().write("x", outcome="fail").final((0, "x")),
        {"failed and there"},
    ),
    "two values of an offset": (
        Script().write("x", at=0).write("y", at=0, producer="q"),
        {"offsets disagree"},
    ),
    "readers disagree": (
        Script()
        .write("x", outcome="unknown", producer="p")
        .write("y", outcome="unknown", producer="q")
        .read((0, "x"))
        .read((0, "y"), who="other"),
        {"offsets disagree"},
    ),
    "above the high watermark": (
        _written().read(*ALL, answer={"high_watermark": 2}),
        {"above the high watermark"},
    ),
    "above the last stable offset": (
        _written().read(*ALL, isolation=RC, answer={"last_stable": 2, "high_watermark": 3}),
        {"above the last stable offset"},
    ),
    "watermarks": (
        _written().read(answer={"last_stable": 4, "high_watermark": 3}),
        {"watermarks"},
    ),
    "the log start above the high watermark": (
        Script().read(answer={"log_start": 4, "high_watermark": 3}),
        {"watermarks", "log start"},
    ),
    "a position above the high watermark": (
        Script().read(position=4, answer={"high_watermark": 3}),
        {"watermarks"},
    ),
    "below the position": (_written().read(*ALL, position=1), {"below the start"}),
    "not before the next position": (_written().read(*ALL, answer={"next": 2}), {"order"}),
    "order of a read": (_written().read(ALL[1], ALL[0], ALL[2]), {"order"}),
    "the log start moves by itself": (
        _written().final(ALL[2], start=2),
        {"log start"},
    ),
    "the log start moves too far": (
        _written()
        .do("delete_records", topic="a", partition=0, offset=1, answer={"log_start": 1})
        .final(ALL[2], start=2),
        {"log start"},
    ),
    "deleted and read": (
        _written()
        .do("delete_records", topic="a", partition=0, offset=2, answer={"log_start": 2})
        .read(*ALL),
        {"deleted"},
    ),
}


@pytest.mark.parametrize("name", REJECTED)
def test_a_wrong_history_is_rejected(name: str) -> None:
    script, expected = REJECTED[name]
    assert script.found == expected


def _fresh(gateway: str, wait_s: float, high: int) -> Script:
    script = Script(freshness_s=0.5).write("x", at=0, gateway="g1").wait(wait_s)
    return script.read(gateway=gateway, answer={"high_watermark": high})


def test_a_gateway_shows_its_own_writes_at_once() -> None:
    assert _fresh("g1", 0, 1).found == set()
    assert _fresh("g1", 0, 0).found == {"stale"}


def test_another_gateway_shows_writes_within_the_bound() -> None:
    assert _fresh("g2", 0.4, 0).found == set()
    assert _fresh("g2", 0.6, 0).found == {"stale"}
    assert _fresh("g2", 0.6, 1).found == set()


def test_a_write_that_is_under_way_when_the_read_begins_may_be_missed() -> None:
    script = Script()
    read = script.reading(gateway="g")
    script.write("x", at=0, gateway="g")
    assert script.answered(read, high_watermark=0).found == set()


def test_the_high_watermark_of_a_reader_does_not_go_back() -> None:
    script = Script().write("x", "y", at=0, gateway="g2")
    script.read(gateway="g1", answer={"high_watermark": 2})
    assert script.read(gateway="g1", answer={"high_watermark": 1}).found == {"stale"}


def test_list_offsets_sees_every_acknowledged_write() -> None:
    def script(found: int) -> Script:
        asked: dict[str, Any] = {"topic": "a", "partition": 0, "at": "latest", "gateway": "g2"}
        return (
            Script()
            .write("x", at=0, gateway="g1")
            .do("list_offsets", **asked, answer={"offset": found})
        )

    assert script(1).found == set()
    assert script(0).found == {"stale"}


@pytest.mark.parametrize(
    ("kind", "seconds", "found"),
    [
        ("store late", 7.0, set[str]()),
        ("store late", 9.0, {"stale"}),
        ("kill", 7.0, {"stale"}),
    ],
)
def test_a_broker_that_was_cut_off_from_the_store_may_answer_from_before(
    kind: str, seconds: float, found: set[str]
) -> None:
    script = Script(ousted_s=8.0).write("x", at=0, gateway="g1")
    for phase in ("start", "end"):
        script.note("fault", fault=kind, node="", phase=phase)
    script.wait(seconds)
    asked: dict[str, Any] = {"topic": "a", "partition": 0, "at": "latest", "gateway": "g2"}
    assert script.do("list_offsets", **asked, answer={"offset": 0}).found == found


def test_the_live_log_has_every_acknowledged_write() -> None:
    def script(end: int, isolation: str) -> Script:
        answer = {"next": end}
        written = Script().write("x", at=0)
        return written.read(position=None, reader="live", isolation=isolation, answer=answer)

    assert script(0, RU).found == {"stale"}
    assert script(0, RC).found == set()  # a transaction may stop it


def test_a_live_read_has_all_up_to_its_end() -> None:
    script = Script().write("x", "y", at=0)
    answer = {"next": 2, "log_start": 0}
    assert script.read((1, "y"), position=None, reader="live", answer=answer).found == {"skipped"}


@pytest.mark.parametrize(("below", "found"), [(1, set[str]()), (0, {"skipped"})])
def test_a_live_read_goes_on_behind_deleted_records(below: int, found: set[str]) -> None:
    script = Script().write("x", "y", at=0)
    script.do("delete_records", topic="a", partition=0, offset=below, answer={"log_start": below})
    answer = {"next": 2}
    assert script.read((1, "y"), position=0, reader="live", answer=answer).found == found


def test_topics_of_one_name_are_told_apart_by_their_ids() -> None:
    script = Script()
    for life, value in (("id1", "x"), ("id2", "y")):
        call = script.call("produce", topic="a", partition=0, producer="p", values=[value])
        script.end(call, offset=0, topic_id=life)
        script.read((0, value), answer={"topic_id": life})
        script.do("delete_topic", topic="a")
    assert script.found == set()
    assert script.read((0, "x"), answer={"topic_id": "id2"}).found == {"offsets disagree"}
