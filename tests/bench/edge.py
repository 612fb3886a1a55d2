"""The gateway's own layers: what a small request costs between its bytes and its op, and between
the broker's answer and the response's bytes.

Connections without a network, and a mesh client that answers when the loop of the measurement says
so. CPU is the best of many short rounds, in microseconds a request. Calls of functions, Python's
and C's, do not depend on the machine or its load.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from quafka_gateway.api import APIS
from quafka_gateway.cluster.broker_link import BrokerLink
from quafka_gateway.config import EdgeSettings
from quafka_gateway.context import Services
from quafka_gateway.edge.connection import KafkaConnection
from quafka_gateway.memory import RequestMemory, ResponseMemory
from quafka_loop.eager_task import DirectFuture
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.ops.base import AnyOp, WireStruct
from quafka_mesh_ops.ops.group_offsets import CommitOffsets, CommitOffsetsResp
from quafka_mesh_ops.ops.groups import Heartbeat, HeartbeatResp
from quafka_mesh_ops.ops.records import ProduceOpResp, ProduceOps, ProduceOpsResp
from quafka_mesh_ops.ops.topics import DescribeTopics, DescribeTopicsResp, TopicDescription
from quafka_proto.headers import encode_request
from quafka_proto.message import Request
from quafka_proto.schema.api_versions import ApiVersionsRequest
from quafka_proto.schema.groups import HeartbeatRequest
from quafka_proto.schema.metadata import MetadataRequest, MetadataRequestTopic
from quafka_proto.schema.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from quafka_telemetry.tracing import Tracer
from tests.support.kafka_calls import VERSION, produce_request
from tests.support.memory_transport import MemoryTransport
from tests.support.tenants import LISTENER, only, tenant_over

SHAPES = ((64, 1), (1, 1), (4, 32))
"""Connections, and requests that each of them sends at once."""
_TOPIC_ID = bytes(range(16))
_STORED = ProduceOpResp(5, topic_id=_TOPIC_ID, high_watermark=6, last_stable_offset=6, prompt=True)
_ANSWERS: dict[type[AnyOp], WireStruct] = {
    CommitOffsets: CommitOffsetsResp([0]),
    DescribeTopics: DescribeTopicsResp("cluster", [TopicDescription("small", _TOPIC_ID, 12)], b"1"),
}


def _answer_to(op: AnyOp) -> WireStruct:
    if isinstance(op, ProduceOps):
        return ProduceOpsResp([_STORED] * len(op.partitions))
    if isinstance(op, Heartbeat):
        return HeartbeatResp(0, [0] * len(op.others or ()))
    return _ANSWERS[type(op)]


class _Transport(MemoryTransport):
    """Drops what is written."""

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        pass


class _Mesh:
    """Answers when `answer` is called."""

    connected = True

    def __init__(self) -> None:
        self._pending: list[tuple[DirectFuture[WireStruct], WireStruct]] = []

    async def call(self, op: AnyOp, **_: object) -> WireStruct:
        future: DirectFuture[WireStruct] = DirectFuture()
        self._pending.append((future, _answer_to(op)))
        return await future

    def answer(self) -> None:
        pending, self._pending = self._pending, []
        for future, answer in pending:
            future.set_result(answer)


class _Load:
    """Connections that all send the same bytes."""

    def __init__(self, connections: int, sent: bytes) -> None:
        self._sent = sent
        self._mesh = _Mesh()
        memory = ResponseMemory(1 << 30)
        tenant = self._tenant = tenant_over(BrokerLink(cast(MeshClient, self._mesh), 1), memory)
        services = Services(
            APIS,
            only(tenant),
            (LISTENER,),
            Tracer(),
            1 << 20,
            RequestMemory(1 << 30),
            memory,
            EdgeSettings(),
        )
        self._connections: list[KafkaConnection] = []
        for serial in range(connections):
            connection = KafkaConnection(services, APIS, LISTENER, serial, lambda _: None)
            connection.connection_made(_Transport())
            self._connections.append(connection)

    async def round(self) -> None:
        """Send on each connection, and wait for all responses."""
        for connection in self._connections:
            connection.data_received(self._sent)
        self._answer()
        await asyncio.sleep(0)
        while any(connection.busy for connection in self._connections):
            self._answer()
            await asyncio.sleep(0)

    def _answer(self) -> None:
        self._tenant.groups.hurry()  # heartbeats wait for others, which is no cost
        self._mesh.answer()


def _requests() -> Iterator[tuple[str, Request, int]]:
    group, member = "group", "consumer-9b3a0e72-2f61"
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    topic = OffsetCommitRequestTopic(name="small", partitions=[partition])
    yield "Produce", produce_request("small", bytes(100)), VERSION["produce"]
    yield "Heartbeat", HeartbeatRequest(group, 3, member), 4
    commit = OffsetCommitRequest(group_id=group, member_id=member, topics=[topic])
    yield "OffsetCommit", commit, 8
    yield "Metadata", MetadataRequest(topics=[MetadataRequestTopic(name="small")]), 12
    yield "ApiVersions", ApiVersionsRequest(), 3


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="tests.bench edge", description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    asyncio.run(_measure(parser.parse_args(arguments).rounds))


async def _measure(rounds: int) -> None:
    shapes = "".join(f"{f'{connections} x {depth}':>10}" for connections, depth in SHAPES)
    print(f"{'CPU us a request':20}{shapes}{'calls':>10}")
    for name, request, version in _requests():
        frame = b"".join(encode_request(1, "client", request, version))
        times = [await _best(_Load(count, frame * depth), count * depth, rounds)
                 for count, depth in SHAPES]  # fmt: skip
        calls = await _calls(_Load(64, frame)) / 64
        print(f"{name:20}{''.join(f'{took:10.1f}' for took in times)}{calls:10.0f}", flush=True)


async def _best(load: _Load, requests: int, rounds: int) -> float:
    best = float("inf")
    repeats = max(1, 200 // requests)
    for _ in range(rounds):
        gc.collect(0)
        began = time.thread_time()
        for _ in range(repeats):
            await load.round()
        best = min(best, (time.thread_time() - began) / repeats / requests)
    return best * 1e6


async def _calls(load: _Load) -> int:
    """The calls of functions in one round."""
    await load.round()
    count = 0

    def profile(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(cast(Callable[..., Any], profile))
    try:
        await load.round()
    finally:
        sys.setprofile(None)
    return count
