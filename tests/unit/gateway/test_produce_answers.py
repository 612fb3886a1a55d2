"""Each partition of a Produce gets its own answer, in requests of every size."""

from __future__ import annotations

from typing import cast

import pytest

from quafka_gateway.api import APIS
from quafka_gateway.cluster.broker_link import BrokerLink
from quafka_gateway.config import EdgeSettings
from quafka_gateway.context import RequestContext, Services
from quafka_gateway.handlers import produce
from quafka_gateway.memory import RequestMemory, ResponseMemory
from quafka_gateway.security.session import ClientSession
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.ops.records import ProduceOpResp, ProduceOps, ProduceOpsResp, RecordError
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from quafka_telemetry.tracing import NO_SPAN, Tracer
from tests.support.tenants import LISTENER, only, tenant_over


class _Mesh:
    """Answers with the partition's number as the offset, and refuses partition 1."""

    connected = True

    async def call(self, op: ProduceOps, **_: object) -> ProduceOpsResp:
        errors = [RecordError(0, "too old")]
        return ProduceOpsResp(
            [
                ProduceOpResp(-1, 32, error_message="bad", record_errors=errors)
                if part.partition == 1
                else ProduceOpResp(part.partition)
                for part in op.partitions
            ]
        )


def _context() -> RequestContext:
    memory = ResponseMemory(1 << 20)
    tenant = tenant_over(BrokerLink(cast(MeshClient, _Mesh()), 1), memory)
    requests = RequestMemory(1 << 20)
    services = Services(
        APIS, only(tenant), (LISTENER,), Tracer(), 1 << 20, requests, memory, EdgeSettings()
    )
    return RequestContext(services, ClientSession(tenant), 9, None, 0, NO_SPAN)


def _request(sizes: list[int], acks: int = -1) -> ProduceRequest:
    topics = [
        TopicProduceData(
            name=f"t{number}",
            partition_data=[PartitionProduceData(index=i, records=b"x") for i in range(size)],
        )
        for number, size in enumerate(sizes)
    ]
    return ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=topics)


@pytest.mark.parametrize("sizes", [[1], [2, 0, 3], [1_500, 0, 1, 1_000], [1] * 2_100])
async def test_each_partition_gets_its_answer(sizes: list[int]) -> None:
    response = await produce.handle(_request(sizes), _context())
    assert response is not None
    assert [topic.name for topic in response.responses] == [f"t{i}" for i in range(len(sizes))]
    for size, topic in zip(sizes, response.responses, strict=True):
        parts = topic.partition_responses
        assert [part.index for part in parts] == list(range(size))
        for part in parts:
            refused = part.index == 1
            assert part.base_offset == (-1 if refused else part.index)
            assert part.error_code == (32 if refused else 0)
            assert part.error_message == ("bad" if refused else None)
            expected = [BatchIndexAndErrorMessage(0, "too old")] if refused else []
            assert part.record_errors == expected


@pytest.mark.parametrize("sizes", [[2, 1], [2_000, 1]])
async def test_a_request_that_is_wrong_as_a_whole_fails_every_partition(sizes: list[int]) -> None:
    response = await produce.handle(_request(sizes, acks=7), _context())
    assert response is not None
    codes = [[part.error_code for part in t.partition_responses] for t in response.responses]
    assert codes == [[ErrorCode.INVALID_REQUIRED_ACKS] * size for size in sizes]
