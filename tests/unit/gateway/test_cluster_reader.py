"""A fetch over one broker's reader, or over two: which reader gets which partitions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

from quafka_gateway.cluster.broker_link import BrokerLink
from quafka_gateway.cluster.cluster import Cluster
from quafka_gateway.cluster.routes import OrgRoutes, parse, to_one
from quafka_gateway.fetch.cluster_reader import ClusterReader
from quafka_gateway.fetch.reader import FetchReader
from quafka_mesh_ops.ops.base import Buffer
from quafka_mesh_ops.ops.records import FetchOp, FetchOpResp, FetchOps, ProduceOpResp, ProduceOps
from quafka_mesh_ops.ops.topics import DescribeTopics, DescribeTopicsResp
from quafka_proto.errors import ErrorCode
from quafka_telemetry.tracing import TraceContext

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
TRACE = TraceContext(1, 2)


@dataclass
class Link:
    """A link that knows no topic."""

    connected: bool = True

    @property
    def usable(self) -> bool:
        return self.connected

    def wait_among_others(self, seconds: float) -> float:
        return seconds if self.connected else 0.0

    async def describe_topics(
        self, op: DescribeTopics, trace: TraceContext | None, seconds: float
    ) -> DescribeTopicsResp:
        return DescribeTopicsResp("", [])


@dataclass
class Reader:
    """Answers each partition with `number` as its high watermark, or with `error`."""

    number: int
    error: int = 0
    ops: list[FetchOps] = field(default_factory=list[FetchOps])
    acknowledged: list[ProduceOps] = field(default_factory=list[ProduceOps])
    closed: bool = False

    async def fetch(self, op: FetchOps, trace: TraceContext | None) -> list[FetchOpResp]:
        self.ops.append(op)
        batch: list[Buffer] = [] if self.error else [b"batch"]
        return [FetchOpResp(batch, self.number, self.error) for _ in op.partitions]

    def produce_acknowledged(self, op: ProduceOps, answers: list[ProduceOpResp]) -> None:
        self.acknowledged.append(op)

    def produced_by(self, op: FetchOp, answer: FetchOpResp) -> Iterator[TraceContext]:
        if answer.high_watermark == self.number:
            yield TRACE

    async def close(self) -> None:
        self.closed = True


class Two:
    """Readers of the brokers b:1, with the topics "logs.*", and a:1."""

    def __init__(self) -> None:
        self.links = [Link(), Link()]
        self.readers = [Reader(1), Reader(2)]
        routes = OrgRoutes(parse("logs.*=b:1,*=a:1"), 1)
        cluster = Cluster([cast(BrokerLink, link) for link in self.links], routes)
        self.reader = ClusterReader(cluster, [cast(FetchReader, each) for each in self.readers])

    async def fetch(self, *topics: str) -> list[tuple[int, int]]:
        """The high watermark and the error of each partition."""
        answers = await self.reader.fetch(fetch_of(*topics), None)
        return [(answer.high_watermark, answer.error_code) for answer in answers]


def fetch_of(*topics: str) -> FetchOps:
    return FetchOps([FetchOp(topic, 0, 0, 1_000) for topic in topics], 0, 1, 1_000)


async def test_the_only_reader_gets_the_op_as_it_is() -> None:
    only = Reader(1)
    cluster = Cluster([cast(BrokerLink, Link())], OrgRoutes(to_one("a:1"), 1))
    reader = ClusterReader(cluster, [cast(FetchReader, only)])
    op = fetch_of("orders", "logs.web")
    assert [answer.high_watermark for answer in await reader.fetch(op, None)] == [1, 1]
    assert only.ops[0] is op


async def test_a_fetch_of_one_broker_s_topics_is_its_reader_s_alone() -> None:
    two = Two()
    two.links[0].connected = False  # the reader decides how long to wait: no one else does
    assert await two.fetch("logs.a", "logs.b") == [(1, 0), (1, 0)]
    assert two.readers[0].ops == [fetch_of("logs.a", "logs.b")]
    assert two.readers[1].ops == []


async def test_a_fetch_over_both_brokers_is_answered_in_its_order() -> None:
    two = Two()
    assert await two.fetch("orders", "logs.a", "x") == [(2, 0), (1, 0), (2, 0)]
    assert [part.topic for part in two.readers[0].ops[0].partitions] == ["logs.a"]
    assert [part.topic for part in two.readers[1].ops[0].partitions] == ["orders", "x"]


async def test_partitions_of_an_unavailable_broker_have_a_retriable_error() -> None:
    two = Two()
    two.links[0].connected = False
    assert await two.fetch("orders", "logs.a") == [(2, 0), (-1, NOT_LEADER)]
    assert two.readers[0].ops == []
    two.links[0].connected = True
    two.readers[0].error = NOT_LEADER  # the broker left while the op was parked
    assert await two.fetch("orders", "logs.a") == [(2, 0), (-1, NOT_LEADER)]


async def test_every_reader_learns_of_acknowledged_produces_and_is_closed() -> None:
    two = Two()
    op = ProduceOps([])
    two.reader.produce_acknowledged(op, [])
    assert [reader.acknowledged for reader in two.readers] == [[op], [op]]
    found = two.reader.produced_by(FetchOp("orders", 0, 0, 1), FetchOpResp([], 2))
    assert list(found) == [TRACE]
    await two.reader.close()
    assert [reader.closed for reader in two.readers] == [True, True]
