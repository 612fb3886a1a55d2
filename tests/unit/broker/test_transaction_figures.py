"""What operators see of transactions: metrics, the status page, and the doctor's probe."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

from quafka_broker.state import BrokerState
from quafka_broker.status.log_status import ShardStatus
from quafka_broker.status.metrics import BrokerMetrics
from quafka_broker.status.op_stats import BrokerStats
from quafka_broker.status.status_page import sections
from quafka_mesh_ops.ops.probe import Probe
from quafka_proto.errors import ErrorCode
from quafka_telemetry.metrics import Sample
from quafka_telemetry.status_page import Facts, PageTable
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import running_state
from tests.unit.broker.transactional import Sender, call, create


def metrics(state: BrokerState) -> dict[str, float]:
    """The metrics of transactions."""
    found = BrokerMetrics(state, BrokerStats(), Path("/"))
    return {
        family.name.removeprefix("quafka_") + "".join(labels): float(value)  # type: ignore[arg-type]
        for family in found.collect()
        if "transaction" in family.name
        for labels, value in family.samples
    }


async def test_metrics_and_the_probe_follow_the_transactions() -> None:
    async with running_state(MemoryDisk()) as state:
        await create(state)
        assert set(metrics(state).values()) == {0.0}
        first, second = Sender(state, "first"), Sender(state, "second")
        for sender in (first, second):
            await sender.init(timeout_ms=60_000)
            await sender.write("t", 0, b"x")
        began = state.transactions.table.entries[1, "first"].start_ms
        with patch.object(state.transactions, "now_ms", lambda: began + 70_000):
            found = metrics(state)
            assert (found["transactional_ids"], found["transactions_open"]) == (2, 2)
            assert found["transaction_oldest_seconds"] == 70
            assert found["transaction_overdue_seconds"] == 10
            probe = await call(state, Probe())
            assert probe.open_transactions == 2
            assert (probe.oldest_transaction_ms, probe.overdue_transaction_ms) == (70_000, 10_000)
        await first.end()
        await second.end(commit=False)
        await second.write("t", 0, b"y")
        zombie = Sender(state, "second")
        zombie.id, zombie.epoch = second.id, second.epoch
        await second.init()
        assert await zombie.add("t", 0) == [ErrorCode.PRODUCER_FENCED]
        found = metrics(state)
        assert found["transactions_endedcommit"] == 1
        assert found["transactions_endedabort"] == 2
        assert found["transaction_requests_fenced"] == 1
        assert (found["transactions_open"], found["transaction_oldest_seconds"]) == (0, 0)


async def test_partitions_with_open_transactions_have_their_unstable_records() -> None:
    async with running_state(MemoryDisk()) as state:
        found = BrokerMetrics(state, BrokerStats(), Path("/"))

        def unstable() -> list[Sample]:
            (family,) = (each for each in found.detail() if "unstable" in each.name)
            return list(family.samples)

        await create(state)
        sender = Sender(state)
        await sender.init()
        await sender.write("t", 1, b"a", b"b")
        assert unstable() == [(("1", "t", "1"), 2)]
        await sender.end()
        assert unstable() == []


async def test_a_timeout_is_counted() -> None:
    async with running_state(MemoryDisk()) as state:
        await create(state)
        sender = Sender(state)
        await sender.init(timeout_ms=1)
        await sender.write("t", 0, b"x")
        later = state.transactions.now_ms() + 1_000
        with patch.object(state.transactions, "now_ms", lambda: later):
            await state.transactions.abort_overdue()
        found = metrics(state)
        assert found["transactions_timed_out"] == found["transactions_endedabort"] == 1


async def test_the_status_page_names_the_oldest() -> None:
    async with running_state(MemoryDisk()) as state:

        def shown() -> dict[str, Facts | PageTable]:
            figures = BrokerMetrics(state, BrokerStats(), Path("/"))
            found = sections([ShardStatus(0, state, figures)], BrokerStats(), list, "")
            return {section.title: section for section in found}

        assert not any("ransactions" in title for title in shown())
        await create(state)
        young, old = Sender(state, "young"), Sender(state, "old")
        for sender in (young, old):
            await sender.init(timeout_ms=1_000)
            await sender.write("t", 0, b"x")
        table = state.transactions.table
        table.entries[1, "old"].start_ms -= 9_000
        facts = shown()["Transactions"]
        assert isinstance(facts, Facts)
        oldest = dict(facts.facts)["oldest open"]
        assert (oldest.text, oldest.bad) == ("old", True)
        open_ = shown()["Open transactions: 2, oldest first"]
        assert isinstance(open_, PageTable)
        marks = [(row[0].text, row[0].bad) for row in open_.rows]
        assert marks == [("old", True), ("young", False)]
