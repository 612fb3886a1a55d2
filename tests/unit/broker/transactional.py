"""A transactional producer over a broker's state, without a mesh."""

from __future__ import annotations

from typing import cast

from quafka_broker.ops.table import OPS
from quafka_broker.state import BrokerState
from quafka_mesh_ops.ops.admin import PartitionsByTopic
from quafka_mesh_ops.ops.base import Op, R
from quafka_mesh_ops.ops.group_offsets import CommitOffset, CommittedOffsets, CommittedQuestion
from quafka_mesh_ops.ops.records import (
    FetchOp,
    FetchOpResp,
    FetchOps,
    ProduceOp,
    ProduceOpResp,
    ProduceOps,
)
from quafka_mesh_ops.ops.topics import CreateTopic
from quafka_mesh_ops.ops.transactions import (
    AddOffsets,
    AddPartitions,
    CommitTxnOffsets,
    EndTransaction,
    EndTransactionResp,
    InitTransactions,
    TransactionalProducer,
)
from quafka_proto.record_codec import Record, build_batch, iter_records
from quafka_proto.records import CONTROL, read_header
from tests.unit.broker.tools import context

GROUP = "g"


async def call(state: BrokerState, op: Op[R]) -> R:
    """Serve an op."""
    return cast(R, await OPS[op.code](state, context(), op))


class Sender:
    """A producer with a transactional id. `implicit`: it works as KIP-890's clients (TV2)."""

    def __init__(
        self, state: BrokerState, name: str = "tx", *, implicit: bool = False, connection: int = 0
    ) -> None:
        self.state = state
        self.name = name
        self.implicit = implicit
        self.connection = connection
        self.id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    @property
    def producer(self) -> TransactionalProducer:
        connection = b"instance" + self.connection.to_bytes(8, "big") if self.connection else b""
        return TransactionalProducer(self.name, self.id, self.epoch, connection)

    async def init(self, timeout_ms: int = 60_000, *, recover: bool = False) -> int:
        """Begin a session; returns the error."""
        producer = self.producer
        if not recover:
            producer = TransactionalProducer(self.name, -1, -1, producer.connection)
        found = await call(self.state, InitTransactions(producer, timeout_ms))
        if not found.error_code:
            self.id, self.epoch = found.producer_id, found.producer_epoch
            self.sequences.clear()
        return found.error_code

    async def add(self, topic: str, *partitions: int, verify: bool = False) -> list[int]:
        op = AddPartitions(self.producer, [PartitionsByTopic(topic, list(partitions))], verify)
        return (await call(self.state, op)).partitions

    async def send(self, topic: str, partition: int, *values: bytes) -> ProduceOpResp:
        """Produce one transactional batch, in a transaction that has the partition."""
        return await self.send_batch(topic, partition, self.batch(topic, partition, *values))

    def batch(self, topic: str, partition: int, *values: bytes) -> bytes:
        sequence = self.sequences.get((topic, partition), 0)
        return bytes(
            build_batch(
                [Record(0, 1_000, None, value, []) for value in values],
                transactional=True,
                producer_id=self.id,
                producer_epoch=self.epoch,
                base_sequence=sequence,
            )
        )

    async def send_batch(self, topic: str, partition: int, batch: bytes) -> ProduceOpResp:
        parts = [ProduceOp(topic, partition, batch)]
        connection = self.producer.connection
        op = ProduceOps(parts, -1, self.name, self.implicit, connection)
        (answer,) = (await call(self.state, op)).partitions
        if not answer.error_code:
            count = read_header(batch).record_count
            at = (topic, partition)
            self.sequences[at] = self.sequences.get(at, 0) + count
        return answer

    async def write(self, topic: str, partition: int, *values: bytes) -> int:
        """Add the partition if the client must, and produce; returns the offset."""
        if not self.implicit:
            assert await self.add(topic, partition) == [0]
        answer = await self.send(topic, partition, *values)
        assert not answer.error_code, answer
        return answer.base_offset

    async def offsets(self, offset: int, *, topic: str = "t", group: str = GROUP) -> int:
        """Store an offset in the transaction; returns the error."""
        if not self.implicit:
            added = await call(self.state, AddOffsets(self.producer, group))
            if added.error_code:
                return added.error_code
        rows = [CommitOffset(topic, 0, offset)]
        op = CommitTxnOffsets(self.producer, group, -1, "", "", rows, self.implicit)
        return (await call(self.state, op)).partitions[0]

    async def end(self, *, commit: bool = True) -> int:
        """End the transaction; returns the error."""
        found = await self.end_once(commit=commit)
        if not found.error_code:
            if found.producer_epoch != self.epoch or found.producer_id != self.id:
                self.sequences.clear()
            self.id, self.epoch = found.producer_id, found.producer_epoch
        return found.error_code

    async def end_once(self, *, commit: bool = True) -> EndTransactionResp:
        return await call(self.state, EndTransaction(self.producer, commit, self.implicit))


async def create(state: BrokerState, name: str = "t", partitions: int = 3) -> int:
    """Create a topic; returns the error."""
    return (await call(state, CreateTopic(name, partitions))).error_code


async def fetch(
    state: BrokerState, topic: str = "t", partition: int = 0, offset: int = 0, *, committed: bool
) -> FetchOpResp:
    op = FetchOps([FetchOp(topic, partition, offset, 1 << 20)], isolation_level=int(committed))
    return (await call(state, op)).partitions[0]


async def read(
    state: BrokerState, topic: str = "t", partition: int = 0, offset: int = 0
) -> list[bytes]:
    """The values that a read_committed consumer returns, by Kafka's rules."""
    answer = await fetch(state, topic, partition, offset, committed=True)
    assert not answer.error_code
    pending = sorted(
        (each.first_offset, each.producer_id) for each in answer.aborted_transactions or ()
    )
    aborted: set[int] = set()
    found: list[bytes] = []
    for batch in answer.records:
        header = read_header(batch)
        assert header.base_offset < answer.last_stable_offset
        while pending and pending[0][0] <= header.last_offset:
            aborted.add(pending.pop(0)[1])
        if header.attributes & CONTROL:
            aborted.discard(header.producer_id)
        elif header.producer_id not in aborted:
            found += [record.value or b"" for record in iter_records(batch)]
    return found


async def committed_offset(
    state: BrokerState, *, stable: bool = False, topic: str = "t", group: str = GROUP
) -> tuple[int, int]:
    """The committed offset of partition 0, and the error."""
    op = CommittedOffsets(group, [CommittedQuestion(topic, [0])], stable)
    (found,) = (await call(state, op)).offsets
    return found.offset, found.error_code
