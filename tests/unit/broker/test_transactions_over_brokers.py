"""Transactions that have partitions of two brokers: joined, ended, lost and found."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from quafka_broker.status.log_status import ShardStatus
from quafka_broker.status.metrics import BrokerMetrics
from quafka_broker.status.op_stats import BrokerStats
from quafka_broker.status.status_page import sections
from quafka_broker.transactions import events
from quafka_broker.transactions.figures import figures_of
from quafka_broker.transactions.peers import PeerError
from quafka_mesh_ops.ops.admin import PartitionsByTopic
from quafka_mesh_ops.ops.base import AnyOp
from quafka_mesh_ops.ops.branches import BranchEnd, FinishTransactions, JoinTransaction
from quafka_mesh_ops.ops.group_offsets import CommitOffset, CommittedOffsets
from quafka_mesh_ops.ops.records import ProduceOp, ProduceOps
from quafka_mesh_ops.ops.topics import DeleteTopic
from quafka_mesh_ops.ops.transactions import (
    CommitTxnOffsets,
    DescribeTransactions,
    ListTransactions,
    WriteMarkers,
)
from quafka_proto.errors import ErrorCode as E
from quafka_telemetry.status_page import PageTable
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import ORG, batch_of
from tests.unit.broker.transactional import GROUP, call, committed_offset, fetch, read
from tests.unit.broker.two_brokers import (
    HERE_TOPIC,
    HOME,
    THERE,
    THERE_TOPIC,
    Network,
    WideSender,
    is_finished,
    two_brokers,
    until,
    up,
)

BOTH = pytest.mark.parametrize("implicit", [False, True])


async def stable(network: Network) -> list[tuple[int, int]]:
    """Last stable offset and high watermark, of partition 0 at each broker."""
    found: list[tuple[int, int]] = []
    for node, topic in ((HOME, HERE_TOPIC), (THERE, THERE_TOPIC)):
        answer = await fetch(network.states[node], topic, committed=True)
        found.append((answer.last_stable_offset, answer.high_watermark))
    return found


async def visible(network: Network) -> list[list[bytes]]:
    return [
        await read(network.states[HOME], HERE_TOPIC),
        await read(network.states[THERE], THERE_TOPIC),
    ]


@BOTH
async def test_a_transaction_ends_at_both(implicit: bool) -> None:
    network = Network()
    async with two_brokers(network) as (home, _):
        sender = WideSender(network, implicit=implicit)
        assert not await sender.init()
        for number, commit in enumerate((True, False, True)):
            await sender.write(HERE_TOPIC, 0, b"h%d" % number)
            await sender.write(THERE_TOPIC, 0, b"f%d" % number)
            assert (await stable(network))[1][0] == 2 * number
            assert not await sender.offsets(number, topic=HERE_TOPIC)
            assert not await sender.end(commit=commit)
        await until(lambda: is_finished(network))
        assert await visible(network) == [[b"h0", b"h2"], [b"f0", b"f2"]]
        assert await stable(network) == [(6, 6), (6, 6)]
        assert await committed_offset(home) == (2, 0)


async def test_only_the_first_batch_of_a_partition_asks_home() -> None:
    network = Network()
    async with two_brokers(network):
        sender = WideSender(network, implicit=True)
        await sender.init()
        for _ in range(3):
            await sender.write(THERE_TOPIC, 0, b"x")
        assert [type(op) for op in network.sent] == [JoinTransaction]
        await sender.write(THERE_TOPIC, 1, b"x")
        assert len(network.sent) == 2


@BOTH
async def test_while_the_network_is_cut_the_other_broker_is_unstable(implicit: bool) -> None:
    network = Network()
    async with two_brokers(network) as (home, _):
        sender = WideSender(network, implicit=implicit)
        await sender.init()
        await sender.write(HERE_TOPIC, 0, b"h")
        await sender.write(THERE_TOPIC, 0, b"f")
        network.cut()
        assert not await sender.end()
        assert await visible(network) == [[b"h"], []]
        assert (await stable(network))[1] == (0, 1)
        (described,) = (await call(home, DescribeTransactions(["tx"]))).transactions
        assert described.state == "PrepareCommit"
        await asyncio.sleep(0.005)
        listed = (await call(home, ListTransactions(["PrepareCommit"], [], 0))).transactions
        assert [(each.transactional_id, each.start_ms) for each in listed] == [
            ("tx", described.start_ms)
        ]
        shown = BrokerMetrics(home, BrokerStats(), Path("/"))
        shown.read()
        figures = figures_of(home.transactions)
        assert (figures.unfinished, figures.open) == (1, 0)
        assert figures.unfinished_ms > 0
        (table,) = (
            each
            for each in sections([ShardStatus(0, home, shown)], BrokerStats(), list, "")
            if isinstance(each, PageTable) and "not ended: 1," in each.title
        )
        assert THERE in str(list(table.rows))
        # The next transaction must not begin.
        if implicit:
            answer = await sender.send(HERE_TOPIC, 0, b"h")
            assert answer.error_code == E.NOT_ENOUGH_REPLICAS
        else:
            assert await sender.add(HERE_TOPIC, 0) == [E.CONCURRENT_TRANSACTIONS]
        answer = await sender.send(THERE_TOPIC, 1, b"f")
        assert answer.error_code == E.NOT_ENOUGH_REPLICAS
        assert await WideSender(network).init() == E.CONCURRENT_TRANSACTIONS
        network.heal()
        await until(lambda: is_finished(network))
        assert await visible(network) == [[b"h"], [b"f"]]
        await sender.write(THERE_TOPIC, 0, b"next")
        assert not await sender.end()
        await until(lambda: is_finished(network))
        assert (await visible(network))[1] == [b"f", b"next"]


async def test_a_batch_that_home_does_not_confirm_is_not_written() -> None:
    network = Network()
    async with two_brokers(network):
        sender = WideSender(network)
        await sender.init()
        answer = await sender.send(THERE_TOPIC, 0, b"not added")
        assert answer.error_code == E.TRANSACTION_ABORTABLE
        assert await sender.add(THERE_TOPIC, 0) == [0]
        assert await sender.add(THERE_TOPIC, 0, verify=True) == [0]
        assert await sender.add(THERE_TOPIC, 1, verify=True) == [E.TRANSACTION_ABORTABLE]
        network.cut()
        assert (await sender.send(THERE_TOPIC, 0, b"x")).error_code == E.NOT_ENOUGH_REPLICAS
        network.heal()
        fenced = WideSender(network)
        fenced.id, fenced.epoch = sender.id, sender.epoch
        await sender.init()
        assert (await fenced.send(THERE_TOPIC, 0, b"x")).error_code == E.INVALID_PRODUCER_EPOCH
        assert await stable(network) == [(0, 0), (0, 0)]


async def test_a_new_session_aborts_what_is_open_elsewhere() -> None:
    network = Network()
    async with two_brokers(network):
        zombie = WideSender(network)
        await zombie.init()
        await zombie.write(THERE_TOPIC, 0, b"lost")
        sender = WideSender(network)
        assert not await sender.init()
        assert is_finished(network)
        assert (await zombie.send(THERE_TOPIC, 0, b"x")).error_code == E.INVALID_PRODUCER_EPOCH
        await sender.write(THERE_TOPIC, 0, b"kept")
        assert not await sender.end()
        await until(lambda: is_finished(network))
        assert (await visible(network))[1] == [b"kept"]


async def test_a_recovery_that_has_to_ask_again() -> None:
    network = Network()
    async with two_brokers(network):
        sender = WideSender(network)
        await sender.init()
        await sender.write(THERE_TOPIC, 0, b"lost")
        network.cut()
        assert await sender.init(recover=True) == E.CONCURRENT_TRANSACTIONS
        network.heal()
        await until(lambda: is_finished(network))
        assert not await sender.init(recover=True)
        await sender.write(THERE_TOPIC, 0, b"kept")
        assert not await sender.end()
        await until(lambda: is_finished(network))
        assert (await visible(network))[1] == [b"kept"]


async def test_repeated_ends_change_nothing() -> None:
    network = Network()
    network.copies = 2
    async with two_brokers(network):
        sender = WideSender(network)
        await sender.init()
        old: list[AnyOp] = []
        for number in range(3):
            await sender.write(THERE_TOPIC, 0, b"%d" % number)
            # A delayed copy of an earlier end arrives in this transaction, of the same epoch.
            peers = network.states[HOME].transactions.finishing.peers
            for op in old:
                assert isinstance(op, FinishTransactions)
                assert (await peers.call(THERE, op, ORG)).transactions == [0]
            assert len(network.states[THERE].transactions.table.branches) == 1
            assert not await sender.end(commit=number != 1)
            await until(lambda: is_finished(network))
            old = [op for op in network.sent if isinstance(op, FinishTransactions)]
        assert (await visible(network))[1] == [b"0", b"2"]


async def test_an_end_that_overtakes_an_answer_of_home_makes_it_void() -> None:
    network = Network()
    async with two_brokers(network):
        sender = WideSender(network)
        await sender.init()
        assert await sender.add(THERE_TOPIC, 0) == [0]
        network.hold.clear()  # answers to questions
        sending = asyncio.create_task(sender.send(THERE_TOPIC, 0, b"late"))
        await until(lambda: any(isinstance(op, JoinTransaction) for op in network.sent))
        await asyncio.sleep(0.01)
        assert not await sender.end(commit=False)
        await until(lambda: is_finished(network))
        network.hold.set()
        assert (await sending).error_code == E.TRANSACTION_ABORTABLE
        assert (await stable(network))[1] == (0, 0)


@BOTH
async def test_a_batch_that_waits_for_home_holds_up_its_producer_alone(implicit: bool) -> None:
    network = Network()
    async with two_brokers(network) as (_, other):
        sender = WideSender(network, implicit=implicit)
        await sender.init()
        if not implicit:
            assert await sender.add(THERE_TOPIC, 0) == [0]
        network.hold.clear()
        first = sender.batch(THERE_TOPIC, 0, b"1")
        sender.sequences[THERE_TOPIC, 0] = 1
        second = sender.batch(THERE_TOPIC, 0, b"2")
        sending = [
            asyncio.create_task(sender.send_batch(THERE_TOPIC, 0, batch))
            for batch in (first, second)
        ]
        await asyncio.sleep(0.02)
        plain = ProduceOps([ProduceOp(THERE_TOPIC, 0, batch_of(b"plain"))])
        async with asyncio.timeout(20):
            (answer,) = (await call(other, plain)).partitions
        assert answer.base_offset == 0
        network.hold.set()
        assert [(await each).base_offset for each in sending] == [1, 2]
        assert sum(isinstance(op, JoinTransaction) for op in network.sent) == 1


async def test_batches_at_home_keep_their_order_behind_an_unfinished_transaction() -> None:
    network = Network()
    async with two_brokers(network) as (home, _):
        sender = WideSender(network, implicit=True)
        await sender.init()
        await sender.write(THERE_TOPIC, 0, b"f")
        network.cut()
        assert not await sender.end()
        home.transactions.finishing.patience = 5.0
        batches = [sender.batch(HERE_TOPIC, 0, b"1")]
        sender.sequences[HERE_TOPIC, 0] = 1
        batches.append(sender.batch(HERE_TOPIC, 0, b"2"))
        sending = [asyncio.create_task(sender.send_batch(HERE_TOPIC, 0, each)) for each in batches]
        await asyncio.sleep(0.02)
        plain = ProduceOps([ProduceOp(HERE_TOPIC, 0, batch_of(b"plain"))])
        assert (await call(home, plain)).partitions[0].base_offset == 0
        network.heal()
        assert [(await each).base_offset for each in sending] == [1, 2]


async def test_answers_that_are_lost_are_asked_for_again() -> None:
    network, lost = Network(), list[AnyOp]()

    def lose_first(op: AnyOp) -> None:
        if len(lost) < 3:
            lost.append(op)
            raise PeerError("lost")

    async with two_brokers(network):
        sender = WideSender(network, implicit=True)
        await sender.init()
        await sender.write(THERE_TOPIC, 0, b"f")
        network.after = lose_first
        assert not await sender.end()
        await until(lambda: is_finished(network))
        assert len(lost) == 3
        assert (await visible(network))[1] == [b"f"]
        assert (await stable(network))[1] == (2, 2)


async def test_a_journal_that_is_shortened_meanwhile_loses_no_end() -> None:
    network = Network()

    async with two_brokers(network) as (home, _):
        sender = WideSender(network)
        await sender.init()
        await sender.write(THERE_TOPIC, 0, b"f")
        network.cut()
        assert not await sender.end()
        home.transactions.events_kept = 0
        shortened = False

        def heal(_op: AnyOp) -> None:
            nonlocal shortened
            network.heal()
            shortened = True

        network.before = heal  # the answer arrives after the restated end
        await home.transactions.shorten()
        await until(lambda: is_finished(network))
        assert shortened
        assert (await visible(network))[1] == [b"f"]


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("restarted", [HOME, THERE])
async def test_it_is_finished_after_a_restart_of_either(restarted: str, checkpoint: bool) -> None:
    network, disks = Network(), {HOME: MemoryDisk(), THERE: MemoryDisk()}
    async with two_brokers(network, disks[HOME], disks[THERE]):
        sender = WideSender(network)
        await sender.init()
        await sender.write(HERE_TOPIC, 0, b"h")
        await sender.write(THERE_TOPIC, 0, b"f")
        network.cut()
        assert not await sender.end()
        if checkpoint:
            for state in network.states.values():
                state.transactions.events_kept = 0
                await state.transactions.shorten()
                await state.log.checkpoint()
    # Both have stopped; the other one comes back first.
    first = THERE if restarted == HOME else HOME
    async with up(network, first, disks[first]), up(network, restarted, disks[restarted]):
        assert (await stable(network))[1] == (0, 1)
        network.heal()
        await until(lambda: is_finished(network))
        assert await visible(network) == [[b"h"], [b"f"]]
        assert await stable(network) == [(2, 2), (2, 2)]


async def test_a_restore_of_home_fences_producers_and_keeps_the_decision() -> None:
    network, disks = Network(), {HOME: MemoryDisk(), THERE: MemoryDisk()}
    async with two_brokers(network, disks[HOME], disks[THERE]) as (home, _):
        ended, opened = WideSender(network, "ended"), WideSender(network, "open")
        for partition, sender in enumerate((ended, opened)):
            await sender.init()
            await sender.write(THERE_TOPIC, partition, b"f")
        network.cut()
        assert not await ended.end()
        # What a restore does in the new data folder, without other brokers.
        for key in list(home.transactions.table.entries):
            await home.transactions.coordinator.fence(key)
        assert len(home.transactions.table.unfinished) == 2
        assert await ended.add(HERE_TOPIC, 0) == [E.CONCURRENT_TRANSACTIONS]
        home.transactions.events_kept = 0
        await home.transactions.shorten()
        await home.log.checkpoint()
    async with up(network, HOME, disks[HOME]), up(network, THERE, disks[THERE]):
        assert len(network.states[HOME].transactions.table.unfinished) == 2
        network.heal()
        await until(lambda: is_finished(network))
        assert await read(network.states[THERE], THERE_TOPIC) == [b"f"]
        assert await read(network.states[THERE], THERE_TOPIC, 1) == []
        for sender in (ended, opened):
            sender.state = network.states[HOME]
            assert await sender.add(HERE_TOPIC, 0) == [E.PRODUCER_FENCED]


async def test_a_branch_that_home_does_not_know_is_aborted() -> None:
    network, disks = Network(), {HOME: MemoryDisk(), THERE: MemoryDisk()}
    async with two_brokers(network, disks[HOME], disks[THERE]):
        sender = WideSender(network)
        await sender.init()
        await sender.write(THERE_TOPIC, 0, b"f")
    # Home is restored from a snapshot that knows nothing of it: the other broker asks.
    async with up(network, HOME, MemoryDisk()), up(network, THERE, disks[THERE]):
        await until(lambda: is_finished(network))
        assert await read(network.states[THERE], THERE_TOPIC) == []
        answer = await fetch(network.states[THERE], THERE_TOPIC, committed=True)
        assert (answer.last_stable_offset, answer.high_watermark) == (2, 2)


async def test_an_open_branch_stays_open_over_restarts() -> None:
    network, disks = Network(), {HOME: MemoryDisk(), THERE: MemoryDisk()}
    async with two_brokers(network, disks[HOME], disks[THERE]):
        sender = WideSender(network)
        await sender.init()
        await sender.write(THERE_TOPIC, 0, b"f")
    async with up(network, HOME, disks[HOME]), up(network, THERE, disks[THERE]):
        await asyncio.sleep(0.05)
        assert (await stable(network))[1] == (0, 1)
        sender.state = network.states[HOME]
        assert not (await sender.send(THERE_TOPIC, 0, b"g")).error_code
        assert not await sender.end()
        await until(lambda: is_finished(network))
        assert (await visible(network))[1] == [b"f", b"g"]


async def test_administrators_abort_whole_transactions() -> None:
    network = Network()
    async with two_brokers(network) as (home, other):
        sender = WideSender(network)
        await sender.init()
        await sender.write(HERE_TOPIC, 0, b"h")
        await sender.write(THERE_TOPIC, 0, b"f")
        markers = [PartitionsByTopic(THERE_TOPIC, [0])]
        alone = WriteMarkers(sender.id, sender.epoch, False, markers)
        assert (await call(other, alone)).partitions == [E.INVALID_TXN_STATE]  # open at home
        await call(home, WriteMarkers(sender.id, sender.epoch, False, []))
        assert (await call(other, alone)).partitions == [0]
        await until(lambda: is_finished(network))
        assert await visible(network) == [[], []]
        assert await stable(network) == [(2, 2), (2, 2)]
        assert await sender.end() == E.PRODUCER_FENCED


async def test_a_home_that_is_gone_for_good() -> None:
    network = Network()
    async with two_brokers(network) as (_, other):
        sender = WideSender(network)
        await sender.init()
        await sender.write(THERE_TOPIC, 0, b"f")
        markers = WriteMarkers(
            sender.id, sender.epoch, False, [PartitionsByTopic(THERE_TOPIC, [0])]
        )
        network.cut()
        assert (await call(other, markers)).partitions == [E.COORDINATOR_NOT_AVAILABLE]
        other.transactions.branches.peers.others = (THERE,)  # type: ignore[misc]
        assert (await call(other, markers)).partitions == [0]
        assert (await stable(network))[1] == (2, 2)


async def test_a_deleted_topic_holds_up_nothing() -> None:
    network = Network()
    async with two_brokers(network) as (_, other):
        sender = WideSender(network)
        await sender.init()
        await sender.write(THERE_TOPIC, 0, b"f")
        assert not (await call(other, DeleteTopic(THERE_TOPIC))).error_code
        assert not await sender.end()
        await until(lambda: is_finished(network))


async def test_timeouts_abort_at_both() -> None:
    network = Network()
    async with two_brokers(network) as (home, _):
        sender = WideSender(network)
        await sender.init(timeout_ms=1)
        await sender.write(HERE_TOPIC, 0, b"h")
        await sender.write(THERE_TOPIC, 0, b"f")
        await asyncio.sleep(0.01)
        await home.transactions.abort_overdue()
        await until(lambda: is_finished(network))
        assert await stable(network) == [(2, 2), (2, 2)]
        assert await visible(network) == [[], []]


async def test_another_broker_may_not_end_a_branch() -> None:
    network = Network()
    async with two_brokers(network) as (_, other):
        sender = WideSender(network)
        await sender.init()
        await sender.write(THERE_TOPIC, 0, b"f")
        (branch,) = other.transactions.table.branches.values()
        end = BranchEnd(branch.producer_id, branch.epoch, branch.number, True)
        found = await other.transactions.branches.finish(ORG, "c" * 64, end)
        assert found == E.CLUSTER_AUTHORIZATION_FAILED
        assert await other.transactions.branches.finish(ORG + 1, HOME, end) == E.NONE
        assert (await stable(network))[1] == (0, 1)


async def test_the_end_waits_for_many_offsets_at_another_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are stored in pieces, and the branch ends with all of them."""
    monkeypatch.setattr(events, "_OFFSETS_PER_EVENT", 10)
    network = Network()
    async with two_brokers(network) as (_, other):
        sender = WideSender(network, implicit=True)
        assert not await sender.init()
        rows = [CommitOffset(THERE_TOPIC, number, 7, topic_id=bytes(15) + b"1", elsewhere=True)
                for number in range(100)]  # fmt: skip
        op = CommitTxnOffsets(sender.producer, GROUP, -1, "", "", rows, True, HOME)
        storing = asyncio.create_task(call(other, op))
        branches = other.transactions.table.branches
        while not any(branch.offsets for branch in branches.values()):
            await asyncio.sleep(0)
        (branch,) = branches.values()
        assert 0 < branch.offsets < 100
        assert not await sender.end()
        assert set((await storing).partitions) == {0}
        await until(lambda: is_finished(network))
        found = (await call(other, CommittedOffsets(GROUP))).offsets
        assert [each.offset for each in found] == [7] * 100
