"""Two brokers without a mesh, and transactional producers over both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import cast

from quafka_broker.ops.table import OPS
from quafka_broker.state import BrokerState
from quafka_broker.transactions.peers import PeerError
from quafka_broker.wal.disk import Disk
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.admin import PartitionsByTopic
from quafka_mesh_ops.ops.base import AnyOp, Op, R
from quafka_mesh_ops.ops.branches import JoinTransaction
from quafka_mesh_ops.ops.group_offsets import CommitOffset, CommittedOffsets
from quafka_mesh_ops.ops.records import ProduceOp, ProduceOpResp, ProduceOps
from quafka_mesh_ops.ops.transactions import (
    AddOffsets,
    AddPartitions,
    BrokerPartitions,
    CommitTxnOffsets,
)
from quafka_proto.records import read_header
from quafka_telemetry.tracing import Tracer
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import ORG, running_state
from tests.unit.broker.transactional import GROUP, Sender, call, create

HOME, THERE = "a" * 64, "b" * 64
HERE_TOPIC, THERE_TOPIC = "t", "far"


class Network:
    """Carries ops between the brokers that are up.

    `before` and `after` may lose an op or its answer by raising PeerError; `copies`: how often an
    op arrives. Answers to JoinTransaction wait for `hold`.
    """

    def __init__(self) -> None:
        self.states: dict[str, BrokerState] = {}
        self.before: Callable[[AnyOp], None] = lambda _op: None
        self.after: Callable[[AnyOp], None] = lambda _op: None
        self.copies = 1
        self.sent: list[AnyOp] = []
        self.hold = asyncio.Event()
        self.hold.set()

    def cut(self) -> None:
        """Lose every op from now on."""

        def lose(_op: AnyOp) -> None:
            raise PeerError("the network is cut")

        self.before = lose

    def heal(self) -> None:
        """Carry every op from now on."""
        self.before = self.after = lambda _op: None


class LocalPeers:
    """The peers of one of two brokers."""

    def __init__(self, network: Network, node_id: str) -> None:
        self._network = network
        self.node_id = node_id
        self.others = (HOME, THERE)

    async def call(self, broker: str, op: Op[R], org: int) -> R:
        network = self._network
        network.sent.append(op)
        await asyncio.sleep(0)
        network.before(op)
        if broker not in network.states:
            raise PeerError("it is down")
        answer: R | None = None
        for _ in range(network.copies):
            state = network.states.get(broker)
            if state is None:
                raise PeerError("it went down")
            context = OpContext(org, None, 0.0, self.node_id, Tracer())
            answer = cast(R, await OPS[op.code](state, context, op))
        network.after(op)
        if isinstance(op, JoinTransaction):
            await network.hold.wait()
        assert answer is not None
        return answer


@asynccontextmanager
async def up(network: Network, node_id: str, disk: Disk) -> AsyncGenerator[BrokerState]:
    """A broker that runs."""
    async with running_state(disk, peers=LocalPeers(network, node_id)) as state:
        state.transactions.finishing.patience = 0.2
        network.states[node_id] = state
        work = asyncio.create_task(state.transactions.run_branches())
        try:
            yield state
        finally:
            network.states.pop(node_id, None)
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work


@asynccontextmanager
async def two_brokers(
    network: Network, here: Disk | None = None, there: Disk | None = None
) -> AsyncGenerator[tuple[BrokerState, BrokerState]]:
    """Both brokers, with their topics."""
    async with AsyncExitStack() as stack:
        home = await stack.enter_async_context(up(network, HOME, here or MemoryDisk()))
        other = await stack.enter_async_context(up(network, THERE, there or MemoryDisk()))
        await create(home, HERE_TOPIC, 2)
        await create(other, THERE_TOPIC, 2)
        yield home, other


class WideSender(Sender):
    """A producer whose transactions have partitions and offsets of both brokers."""

    def __init__(
        self, network: Network, name: str = "tx", *, implicit: bool = False, connection: int = 0
    ) -> None:
        self.network = network
        super().__init__(network.states[HOME], name, implicit=implicit, connection=connection)

    async def add(self, topic: str, *partitions: int, verify: bool = False) -> list[int]:
        if topic == HERE_TOPIC:
            return await super().add(topic, *partitions, verify=verify)
        far = [BrokerPartitions(THERE, [PartitionsByTopic(topic, list(partitions))])]
        op = AddPartitions(self.producer, [], verify, far)
        return (await call(self.network.states[HOME], op)).partitions

    async def send_batch(self, topic: str, partition: int, batch: bytes) -> ProduceOpResp:
        if topic == HERE_TOPIC:
            return await super().send_batch(topic, partition, batch)
        parts = [ProduceOp(topic, partition, batch)]
        op = ProduceOps(parts, -1, self.name, self.implicit, self.producer.connection, HOME)
        (answer,) = (await call(self.network.states[THERE], op)).partitions
        if not answer.error_code:
            at = (topic, partition)
            self.sequences[at] = self.sequences.get(at, 0) + read_header(batch).record_count
        return answer

    async def offsets_at(self, node: str, topic: str, group: str = GROUP) -> int:
        """Store an offset of a broker's group, in a topic of yet another broker; the error."""
        far = THERE if node == THERE else ""
        if not self.implicit:
            op = AddOffsets(self.producer, group, far)
            if error := (await call(self.network.states[HOME], op)).error_code:
                return error
        rows = [CommitOffset(topic, 0, 1, topic_id=bytes(15) + b"1", elsewhere=True)]
        commit = CommitTxnOffsets(
            self.producer, group, -1, "", "", rows, self.implicit, HOME if far else ""
        )
        return (await call(self.network.states[node], commit)).partitions[0]


async def topics_with_offsets(state: BrokerState, group: str = GROUP) -> list[str]:
    """The topics with committed offsets of a group."""
    return [each.topic for each in (await call(state, CommittedOffsets(group))).offsets]


async def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


def is_finished(network: Network) -> bool:
    """Whether no transaction of the test's org is unfinished or has an open branch."""
    home, other = network.states[HOME], network.states[THERE]
    assert all(key[0] == ORG for key in home.transactions.table.entries)
    return not home.transactions.table.unfinished and not other.transactions.table.branches
