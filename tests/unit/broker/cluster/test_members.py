"""Who is there, from registrations that change or do not."""

from __future__ import annotations

from quafka_broker.cluster.members import ALIVE_SECONDS, GONE_SECONDS, ClusterMembers
from quafka_proto.cluster_format import Registration

WALL = 1_000_000_000


def beat(node: str, number: int, at_ms: int = WALL, *, draining: bool = False) -> Registration:
    return Registration(node, f"{node}:1", number, at_ms, draining)


def test_a_broker_is_there_while_its_registration_changes() -> None:
    members = ClusterMembers()
    members.observe([beat("a", 1)], 0.0, WALL)
    assert members.ready() == ["a"]
    members.observe([beat("a", 2)], ALIVE_SECONDS, WALL)
    members.observe([beat("a", 2)], 2 * ALIVE_SECONDS - 1, WALL)
    assert members.ready() == ["a"]
    assert members.there_for("a", 2 * ALIVE_SECONDS - 1) == 2 * ALIVE_SECONDS - 1
    members.observe([beat("a", 2)], 2 * ALIVE_SECONDS + 1, WALL)
    assert members.ready() == []
    assert members.there_for("a", 99.0) == 0.0


def test_an_old_registration_is_of_nobody_until_it_changes() -> None:
    members = ClusterMembers()
    members.observe([beat("a", 7, WALL - 60_000), beat("ahead", 7, WALL + 60_000)], 0.0, WALL)
    assert members.there() == []
    members.observe([beat("a", 7, WALL - 60_000), beat("ahead", 8, WALL + 62_000)], 2.0, WALL)
    assert members.ready() == ["ahead"]
    assert members.there_for("ahead", 5.0) == 3.0


def test_a_suspect_counts_again_after_its_next_beat() -> None:
    members = ClusterMembers()
    members.observe([beat("a", 1), beat("b", 1)], 0.0, WALL)
    members.suspect("a")
    members.suspect("unknown")
    assert members.ready() == ["b"]
    members.observe([beat("a", 1), beat("b", 2)], 1.0, WALL)
    assert members.ready() == ["b"]
    members.observe([beat("a", 2), beat("b", 3)], 2.0, WALL)
    assert members.ready() == ["a", "b"]
    assert members.there_for("a", 3.0) == 1.0


def test_a_draining_broker_is_there_and_takes_nothing() -> None:
    members = ClusterMembers()
    members.observe([beat("a", 1, draining=True), beat("b", 1)], 0.0, WALL)
    assert [each.node for each in members.there()] == ["a", "b"]
    assert members.ready() == ["b"]
    members.observe([beat("b", 2)], 1.0, WALL)
    assert [each.node for each in members.there()] == ["b"]


def test_a_registration_of_nobody_is_deleted_in_the_end() -> None:
    members = ClusterMembers()
    later = GONE_SECONDS + 1
    members.observe([beat("a", 1), beat("slow clock", 1, WALL - 10**7)], 0.0, WALL)
    members.observe([beat("a", 1), beat("slow clock", 2, WALL - 10**7)], later, WALL)
    assert members.gone(later, WALL) == []
    assert members.known() == ["a", "slow clock"]
    assert members.gone(later, WALL + round(later * 1000)) == ["a"]
