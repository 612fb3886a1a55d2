"""Every API asks for the rights that it declares, and for no others; the docs list them.

`python -m tests.unit.gateway.test_declared_access` rewrites the table in docs/security.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from quafka_gateway.api import APIS
from quafka_gateway.cluster.broker_link import BrokerUnavailableError
from quafka_gateway.context import RequestContext
from quafka_gateway.security.acl_index import EVERY_OPERATION
from quafka_gateway.security.authorizer import Authorizer, NeededRight
from quafka_gateway.security.principal import Principal
from quafka_mesh_ops.ops.base import AnyOp
from quafka_proto.config_kinds import ResourceType
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Message
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.schema import (
    cluster,
    configs,
    fetch,
    groups,
    metadata,
    offsets,
    produce,
    producer_id,
    transactions,
)
from tests.unit.gateway.test_declared_order import SAMPLES, TOPIC, served

PAGE = Path(__file__).parents[3] / "docs" / "security.md"
_BEGIN, _END = "<!-- rights -->\n", "<!-- end of rights -->\n"
_CONFIGS = [
    configs.AlterConfigsResource(resource_type=kind, resource_name="1", configs=[])
    for kind in ResourceType
]
_TRANSACTIONAL = bytes(
    build_batch([Record(0, 0, None, b"v", [])], transactional=True, producer_id=1, base_sequence=0)
)
FURTHER: list[tuple[int, Message, int]] = [
    (1, fetch.FetchRequest(replica_id=1, topics=[
        fetch.FetchTopic(topic=TOPIC, partitions=[fetch.FetchPartition(partition=0)])
    ]), 4),
    (0, produce.ProduceRequest(acks=-1, topic_data=[
        produce.TopicProduceData(name=TOPIC, partition_data=[
            produce.PartitionProduceData(index=0, records=_TRANSACTIONAL)
        ])
    ], transactional_id="x"), 9),
    (3, metadata.MetadataRequest(topics=[], include_cluster_authorized_operations=True), 8),
    (9, offsets.OffsetFetchRequest(group_id="g", topics=[
        offsets.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
    ]), 5),
    (60, cluster.DescribeClusterRequest(include_cluster_authorized_operations=True), 1),
    (10, groups.FindCoordinatorRequest(key="x", key_type=1), 3),
    (22, producer_id.InitProducerIdRequest(transactional_id="x"), 4),
    (24, transactions.AddPartitionsToTxnRequest(v3_and_below_transactional_id="x"), 4),
    (24, transactions.AddPartitionsToTxnRequest(v3_and_below_topics=[
        transactions.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])
    ]), 3),
    (32, configs.DescribeConfigsRequest(resources=[
        configs.DescribeConfigsResource(resource_type=kind, resource_name="1")
        for kind in ResourceType
    ]), 4),
    (33, configs.AlterConfigsRequest(resources=_CONFIGS), 2),
    (44, configs.IncrementalAlterConfigsRequest(resources=[
        configs.IncrementalAlterConfigsResource(
            resource_type=each.resource_type, resource_name="1", configs=[]
        )
        for each in _CONFIGS
    ]), 1),
]  # fmt: skip
"""Requests for which handlers ask for rights that their samples do not need."""


class Recorder:
    """An authorizer, and the access that it gives to everybody: it records the questions."""

    generation = 1
    is_super = False

    def __init__(self, allowed: Callable[[NeededRight], bool]) -> None:
        self.asked: set[NeededRight] = set()
        self._allowed = allowed
        self.principal = Principal("User", "nobody")
        self.org_id = 0

    def access(self, org_id: int, principal: Principal, _host: str) -> Recorder:
        self.org_id, self.principal = org_id, principal
        return self

    def allows(self, right: NeededRight, _name: str = "") -> bool:
        self.asked.add(right)
        return self._allowed(right)

    allows_once = allows_any = allows

    def decide(self, _kind: int, _name: str) -> int:
        return EVERY_OPERATION

    def until_changed(self) -> Callable[[], bool]:
        return lambda: True


async def _asked(
    key: int, request: Message, version: int, allowed: Callable[[NeededRight], bool]
) -> set[NeededRight]:
    recorder = Recorder(allowed)
    async with served() as (_, about):
        await _prepare(about)
        await _call(key, request, replace(about, version=version), recorder)
    return recorder.asked


async def _prepare(about: RequestContext) -> None:
    """A group with an offset, and a transaction: listings have something to leave out."""
    handle = APIS[8].handle
    await handle(SAMPLES[8][0], replace(about, version=SAMPLES[8][1]))
    began = await APIS[22].handle(
        producer_id.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1_000),
        replace(about, version=4),
    )
    assert isinstance(began, producer_id.InitProducerIdResponse)
    added = transactions.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=began.producer_id,
        v3_and_below_producer_epoch=began.producer_epoch,
        v3_and_below_topics=[transactions.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
    )
    await APIS[24].handle(added, replace(about, version=3))


async def _call(key: int, request: Message, about: RequestContext, recorder: Recorder) -> None:
    services = replace(about.services, authorizer=cast(Authorizer, recorder))
    with suppress(TimeoutError, BrokerUnavailableError, NotImplementedError):
        async with asyncio.timeout(0.05 if APIS[key].long_poll else 5.0):
            await APIS[key].handle(request, replace(about, services=services))


def _everything(_right: NeededRight) -> bool:
    return True


def _nothing(_right: NeededRight) -> bool:
    return False


def _everything_but(denied: NeededRight) -> Callable[[NeededRight], bool]:
    return lambda right: right != denied


@pytest.mark.parametrize("key", APIS)
async def test_an_api_asks_for_the_rights_that_it_declares(key: int) -> None:
    declared = set(APIS[key].access)
    samples = [SAMPLES[key], *((r, v) for k, r, v in FURTHER if k == key)]
    rules = [_everything, _nothing, *(map(_everything_but, declared) if declared else ())]
    asked: set[NeededRight] = set()
    for request, version in samples:
        for allowed in rules:
            asked |= await _asked(key, request, version, allowed)
    assert asked == declared, f"{APIS[key].name}: {sorted(map(str, asked ^ declared))}"


@pytest.mark.parametrize("key", [key for key, api in APIS.items() if api.for_operators])
async def test_an_api_of_operators_refuses_whoever_is_none(key: int) -> None:
    """Also with every right that rules can give."""
    request, version = SAMPLES[key]
    async with served() as (client, about):
        services = replace(about.services, authorizer=cast(Authorizer, Recorder(_everything)))
        context = replace(about, services=services, version=version)
        response = await APIS[key].handle(request, context)
        assert getattr(response, "error_code", 0) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert client.called == []


async def test_a_denied_request_sends_no_op() -> None:
    """What the client may not know of is not looked up, so no duration tells of it."""
    asking = {
        api.name
        for key, api in APIS.items()
        if api.access and key not in _LISTED and await _ops_when_denied(key)
    }
    assert asking == set()


async def _ops_when_denied(key: int) -> list[AnyOp]:
    request, version = SAMPLES[key]
    async with served() as (client, about):
        await _call(key, request, replace(about, version=version), Recorder(_nothing))
        return client.called


_LISTED = {3, 16, 60, 66}
"""Listings, whose entries are left out, and what everybody may know of the cluster."""


def table() -> str:
    """The rights of all APIs as a Markdown table."""
    rows = ["| API | versions | rights |", "| --- | --- | --- |"]
    for key, api in APIS.items():
        low, high = api.versions.low, api.versions.high
        versions = str(low) if low == high else f"{low} to {high}"
        rights = ", ".join(map(str, api.access)) or ("operators" if api.for_operators else "–")
        rows.append(f"| {api.name} ({key}) | {versions} | {rights} |")
    return "\n".join(rows) + "\n"


def test_the_docs_list_every_right() -> None:
    _, _, rest = PAGE.read_text().partition(_BEGIN)
    assert rest.partition(_END)[0] == table(), f"write it again: python -m {__name__}"


if __name__ == "__main__":
    before, _, rest = PAGE.read_text().partition(_BEGIN)
    PAGE.write_text(before + _BEGIN + table() + _END + rest.partition(_END)[2])
