"""DescribeGateway (key 20551, Quafka's own), versions 0-7: this gateway and its brokers.

What concerns all orgs is for clients of the gateway's own: the packets of the mesh, which count
everybody's requests, the scheduled snapshots, and the texts about a broker's problems, which name
folders and buckets. The others learn that there is a problem.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from quafka_gateway.cluster.broker_link import BrokerLink, BrokerUnavailableError
from quafka_gateway.config import parse_super_users
from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DESCRIBE_CLUSTER, may_on_cluster
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, SeenState
from quafka_gateway.listeners import KafkaListener
from quafka_loop import clock
from quafka_mesh_ops.ops.probe import Probe, ProbeResp
from quafka_mesh_ops.settings import join_address
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.quafka import (
    DescribeGatewayRequest,
    DescribeGatewayResponse,
    GatewayBroker,
    GatewayListener,
)
from quafka_telemetry.tracing import TraceContext
from quafka_telemetry.version import version

_ANSWER_SECONDS = 2.0
_HIDDEN_PROBLEM = "it reports a problem; the cluster's operators can read which"


async def handle(_: DescribeGatewayRequest, context: RequestContext) -> DescribeGatewayResponse:
    """Probe all brokers at once; wait only briefly for an unavailable one."""
    if not may_on_cluster(DESCRIBE_CLUSTER, context):
        return DescribeGatewayResponse(
            server_time_ms=clock.time_ns() // 1_000_000,
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        )
    with context.child("gateway.kafka.describe_gateway") as span:
        brokers = await asyncio.gather(
            *(_broker(link, span.context) for link in context.tenant.cluster.links)
        )
    if not context.sees_all_orgs:
        for broker in brokers:
            hide_other_orgs(broker)
    runs = await asyncio.to_thread(version)
    answer = DescribeGatewayResponse(
        server_time_ms=clock.time_ns() // 1_000_000, version=runs, brokers=brokers
    )
    if context.is_operator:
        services = context.services
        answer.listeners = [_listener(each) for each in services.listeners]
        answer.authorizer = services.authorizer is not None
        answer.super_users = len(parse_super_users(services.config.super_users))
        answer.security_problem = services.security_problem()
    return answer


API = Api(
    key=20551,
    versions=Versions(0, 7),
    request=DescribeGatewayRequest,
    handle=handle,
    access=(DESCRIBE_CLUSTER,),
    order=Order(reads=SeenState.ALL),
    quafka_only=True,
)


def _listener(listener: KafkaListener) -> GatewayListener:
    return GatewayListener(
        name=listener.name,
        protocol=listener.protocol,
        address=join_address(listener.host, listener.port),
        open=not listener.authenticates,
        loopback=listener.loopback,
    )


async def _broker(link: BrokerLink, trace: TraceContext | None) -> GatewayBroker:
    began = clock.perf_counter()
    answer: ProbeResp | None = None
    # A broker that has just disconnected, or is just being connected, may answer in a moment.
    patience = link.wait_among_others(_ANSWER_SECONDS)
    if patience > 0:
        with suppress(BrokerUnavailableError):  # reported as not answered
            answer = await link.call(Probe(), trace, patience)
    seconds = clock.perf_counter() - began
    counters = link.counters()
    found = GatewayBroker(
        address=counters.address,
        connected=counters.connected,
        away_ms=round(link.seconds_disconnected * 1000),
        problem=counters.refusal,
        shard=link.shard,
    )
    if answer is not None:
        found.answered = True
        found.version, found.time_ms = answer.version, answer.now_ms
        found.problem, found.op_us = answer.problem, round(seconds * 1e6)
        found.snapshot_interval_ms = answer.snapshot_interval_ms
        found.snapshot_age_ms = answer.snapshot_age_ms
        found.snapshot_problem = answer.snapshot_problem
        found.open_transactions = answer.open_transactions
        found.oldest_transaction_ms = answer.oldest_transaction_ms
        found.overdue_transaction_ms = answer.overdue_transaction_ms
        found.unfinished_transactions = answer.unfinished_transactions
        found.unfinished_transaction_ms = answer.unfinished_transaction_ms
        found.servers = answer.servers or []
    if counters.transport is not None:
        found.rtt_us = counters.transport.rtt_us
        found.datagram_bytes = counters.transport.datagram_bytes
        found.packets_sent = counters.transport.packets_sent
        found.packets_lost = counters.transport.packets_lost
    return found


def hide_other_orgs(broker: GatewayBroker) -> None:
    """Leave out what concerns all orgs."""
    broker.packets_sent = broker.packets_lost = 0
    broker.problem = _HIDDEN_PROBLEM if broker.problem else ""
    broker.snapshot_interval_ms, broker.snapshot_age_ms, broker.snapshot_problem = 0, -1, ""
