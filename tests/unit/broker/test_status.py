"""The broker's status page: the summary, and sections that name their shards."""

from __future__ import annotations

from pathlib import Path

from quafka_broker.state import BrokerState
from quafka_broker.status.log_status import ShardStatus, summary
from quafka_broker.status.metrics import BrokerMetrics
from quafka_broker.status.op_stats import BrokerStats
from quafka_broker.status.status_page import sections
from quafka_telemetry.status_page import Facts, PageTable, Section, text
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.test_fetch import put
from tests.unit.broker.test_shares import acknowledge, acquire
from tests.unit.broker.tools import ORG, running_state
from tests.unit.broker.transactional import Sender, create

WINDOWS = "Windows of share groups: 1, most records in flight first"


def status(number: int, state: BrokerState) -> ShardStatus:
    return ShardStatus(number, state, BrokerMetrics(state, BrokerStats(), Path("/")))


def shown(*shards: ShardStatus) -> dict[str, Section]:
    found = list(sections(shards, BrokerStats(), list, ""))
    titles = [each.title for each in found]
    assert len(set(titles)) == len(titles), "no section is there twice"
    return dict(zip(titles, found, strict=True))


def cells(section: Section) -> list[dict[str, str]]:
    assert isinstance(section, PageTable)
    return [
        dict(zip(section.columns, (cell.text for cell in row), strict=True)) for row in section.rows
    ]


async def test_the_only_log_needs_no_number() -> None:
    async with running_state(MemoryDisk()) as state:
        await create(state)
        found = shown(status(0, state))
        assert isinstance(found["Log"], Facts)
        assert "shard" not in cells(found["Topics: 1"])[0]


async def test_several_shards_are_rows_or_are_named() -> None:
    async with running_state(MemoryDisk()) as one, running_state(MemoryDisk()) as other:
        await create(other)
        await Sender(other, "id").init()
        shards = status(2, one), status(5, other)
        found = shown(*shards)
        logs = cells(found["Logs of the shards at this broker: 2"])
        assert [(row["shard"], row["topics"]) for row in logs] == [("2", "0"), ("5", "1")]
        assert {row["state"] for row in logs} == {"accepts writes"}
        assert [row["shard"] for row in cells(found["Topics: 1"])] == ["5"]
        assert "Shard 5: Transactions" in found
        assert not any(title.startswith("Shard 2") for title in found)


async def test_windows_of_share_groups_show_records_that_are_delivered_again_and_again() -> None:
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", 2)
        assert not any("share" in title for title in shown(status(0, state))), "no share groups"
        for _ in range(4):
            await put(state, topic, b"1", b"2", b"3")
        await acquire(state, "a", max_records=6)
        assert await acknowledge(state, (0, 2, 1), (3, 3, 3), (4, 4, 2), member="a") == 0
        await acquire(state, "b", max_records=1, exact=True)
        found = shown(status(0, state))
        (row,) = cells(found[WINDOWS])
        assert row == {
            "group": "g", "org": str(ORG), "topic": "t", "partition": "0", "start": "4", "end": "6",
            "with members": "2", "to deliver again": "0", "archived": "0", "most deliveries": "2",
            "at offset": "4", "limit": "5", "full": "",
        }  # fmt: skip
        assert await acknowledge(state, (4, 4, 2), member="b") == 0
        assert await acknowledge(state, (5, 5, 3), member="a") == 0
        (row,) = cells(shown(status(0, state))[WINDOWS])
        assert (row["to deliver again"], row["archived"], row["most deliveries"]) == ("1", "1", "2")


async def test_the_summary_is_about_all_shards() -> None:
    async with running_state(MemoryDisk()) as one, running_state(MemoryDisk()) as other:
        await create(one)
        await create(other)
        found = summary([status(0, one), status(1, other)], ("shards here", text("2 of 2")))
        facts = {name: cell.text for name, cell in found.facts}
        assert (facts["topics"], facts["writes"]) == ("2", "accepted")
        assert facts["shards here"] == "2 of 2"
        assert summary([]).facts[0][1].text == "accepted", "a broker may have no shard for now"


async def test_the_summary_tells_why_a_log_takes_no_writes() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state, running_state(MemoryDisk()) as other:
        await create(state)
        sender = Sender(state, "id")
        await sender.init()
        disk.room = 0
        assert await sender.add("t", 0) != [0]
        found = summary([status(0, state), status(1, other)])
        (writes,) = (cell for name, cell in found.facts if name == "writes")
        assert writes.bad
        assert "cannot be written" in writes.text
