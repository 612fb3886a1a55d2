"""What the console reads from the status pages of gateways and brokers."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import starmap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quafka_broker.partitions.partition import PartitionId
from quafka_broker.state import BrokerState
from quafka_broker.status.log_status import ShardStatus
from quafka_broker.status.metrics import BrokerMetrics
from quafka_broker.status.op_stats import BrokerStats
from quafka_broker.status.status_page import sections
from quafka_broker.wal.quarantine import Lost, SegmentDamage
from quafka_console.data.damage import LostRecords, lost_records
from quafka_console.data.shards import SeenShard, shards
from quafka_console.data.share_groups import share_windows
from quafka_console.data.slow import slow_requests
from quafka_console.data.snapshots import commands, schedules
from quafka_console.data.status_pages import BadStatusPageError, StatusPage, parse_status_page
from quafka_telemetry import status_page
from quafka_telemetry.operations import PageRequest
from quafka_telemetry.status_page import Facts, PageTable, Section, count, duration, moment, text
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.test_fetch import put
from tests.unit.broker.test_shares import acknowledge, acquire
from tests.unit.broker.tools import ORG, running_state

ADDRESS = "127.0.0.1:9193"


async def parsed(*found: Section) -> StatusPage:
    """A page as the operations port sends it."""

    async def every() -> list[Section]:
        return list(found)

    reply = await status_page.StatusPage("broker", dict, every).page(
        PageRequest(accept="application/json")
    )
    assert not isinstance(reply.body, bytes)
    return parse_status_page(ADDRESS, b"".join(reply.body))


async def broker_page(state: BrokerState, *numbers: int) -> StatusPage:
    """The page of a broker that has the state as each of these shards."""
    statuses = [
        ShardStatus(number, state, BrokerMetrics(state, BrokerStats(), Path("/")))
        for number in numbers
    ]
    return await parsed(*sections(statuses, BrokerStats(), list, ""))


async def test_windows_of_share_groups_come_from_the_brokers_page() -> None:
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        await put(state, topic, *[b"v"] * 6)
        await acquire(state, "a")
        assert await acknowledge(state, (0, 4, 1), (5, 5, 2), member="a") == 0
        for _ in range(2):
            await acquire(state, "a")
            assert await acknowledge(state, (5, 5, 2), member="a") == 0
        await acquire(state, "a")
        page = await broker_page(state, 0)
        (window,) = share_windows([page]).windows
        assert (window.group, window.topic, window.partition) == ("g", "t", 0)
        assert (window.start, window.end, window.held, window.again) == (5, 6, 1, 0)
        assert (window.most_deliveries, window.at_offset, window.limit) == (4, 5, 5)
        assert window.is_poison
        assert share_windows([page], "another").windows == []
        assert len(share_windows([await broker_page(state, 2, 5)]).windows) == 2, "with a shard"


async def test_records_that_damage_has_taken_are_named_by_topic() -> None:
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 2)
        other, _ = await state.topics.create(ORG, "u", 1)
        assert lost_records([await broker_page(state, 0)], topic.ulid) == []
        gone = PartitionId(ORG, b"x" * 8, 0, 7)
        lost = [(topic.partition_id(1), 3, 9), (topic.partition_id(0), 4, 5), (gone, 0, 9)]
        damage = SegmentDamage(1, 64, 128, "bad checksum", 10, 20, tuple(starmap(Lost, lost)))
        state.log.damages.append(damage)  # type: ignore[attr-defined]
        page = await broker_page(state, 0)
        assert lost_records([page], topic.ulid) == [LostRecords(0, 4, 5), LostRecords(1, 3, 9)]
        assert lost_records([page], other.ulid) == []
        assert lost_records([page], "") == []
        assert len(lost_records([await broker_page(state, 2, 5)], topic.ulid)) == 4, "with a shard"


async def test_slow_requests_of_all_processes_are_one_list() -> None:
    row = [moment(20.0), text("Fetch"), text("me"), text("10.0.0.1:5"), duration(1.5),
           duration(None), text("NONE"), status_page.trace("ab" * 16, "")]  # fmt: skip
    columns = ("ended", "API", "client", "address", "took", "parked", "errors", "trace")
    gateway = await parsed(PageTable("Slow requests: 0.5 s or longer", columns, [row]))
    op = [moment(30.0), text("append"), text(7), text("node"), duration(2.5), duration(0.5)]
    op_columns = ("ended", "op", "org", "gateway", "took", "parked")
    broker = await parsed(PageTable("Slow ops: 0.5 s or longer", op_columns, [op]))
    later, sooner = slow_requests([gateway, broker])
    assert (later.name, later.asker, later.seconds, later.parked_seconds) == (
        "append", "node", 2.5, 0.5,
    )  # fmt: skip
    assert (sooner.name, sooner.ended, sooner.address) == ("Fetch", 20.0, "10.0.0.1:5")
    assert (sooner.seconds, sooner.parked_seconds) == (1.5, 0.0)
    assert (later.trace_id, sooner.trace_id) == ("", "ab" * 16)


async def test_the_newest_view_of_the_shards_counts() -> None:
    columns = ("shard", "owner", "here", "epoch", "lease", "moves", "problem")

    def table(epoch: int, owner: str, lease: str, moves: str) -> PageTable:
        row = [text("0"), text(owner), text(""), text(str(epoch)), text(lease), text(moves),
               text("")]  # fmt: skip
        return PageTable("Shards of the cluster; brokers: a, b", columns, [row])

    old = await parsed(table(3, "a at 1:2", "2.5 s", ""))
    new = await parsed(table(4, "b at 3:4", "-0.5 s", "to a"))
    assert shards([old, new]) == [SeenShard(0, "b at 3:4", 4, -0.5, "a", "")]
    assert shards([await parsed(table(5, "nobody", "", "to a"))]) == [
        SeenShard(0, "", 5, None, "a", "")
    ]
    assert shards([await parsed()]) == []


async def test_schedules_of_snapshots() -> None:
    facts = Facts(
        "The broker's own snapshots",
        [
            ("destination", text("s3://backup/q")), ("interval", duration(3_600.0)),
            ("last good snapshot", moment(1e9)), ("age of that snapshot", duration(7_300.0)),
            ("snapshots since the start", count(4)), ("failures since the start", count(1)),
            ("problem", text("none")),
        ],
    )  # fmt: skip
    (found,) = schedules([await parsed(facts)])
    assert (found.destination, found.interval_seconds, found.last) == ("s3://backup/q", 3_600, 1e9)
    assert (found.made, found.failures, found.problem, found.is_late) == (4, 1, "", True)
    assert schedules([await parsed()]) == []


def test_commands_quote_their_arguments() -> None:
    found = commands("/mnt/my lake; rm -rf ~")
    assert found.create == "quafka snapshot create '/mnt/my lake; rm -rf ~' --data ./quafka-data"
    assert found.restore == "quafka snapshot restore '/mnt/my lake; rm -rf ~' --data ./restored"


def test_what_is_no_status_page_is_refused_in_a_sentence() -> None:
    for body in (b"<!doctype html>", b"{}", b"[]", b"null", b"\xff", b'{"sections": 3}'):
        with pytest.raises(BadStatusPageError, match="does not send its status page as JSON"):
            parse_status_page(ADDRESS, body)


@given(st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(
        st.sampled_from(["program", "ready", "problems", "time", "sections", "title", "facts",
                         "columns", "rows", "more"]), inner),
))  # fmt: skip
def test_any_document_is_a_page_or_is_refused(document: object) -> None:
    try:
        page = parse_status_page(ADDRESS, json.dumps(document).encode())
    except BadStatusPageError:
        return

    def every_lost(pages: list[StatusPage]) -> object:
        return lost_records(pages, "x")

    reads: list[Callable[[list[StatusPage]], object]] = [
        share_windows, slow_requests, shards, schedules, every_lost,
    ]  # fmt: skip
    for read in reads:
        read([page])
