"""Our own APIs, for tools that connect as Kafka clients: DescribeGroupLag (key 20550),
DescribeGateway (20551).

The keys are far above Kafka's. ApiVersions lists them only for a client with the software name
`CLIENT_SOFTWARE`: other clients have no use for them, and some fail on unknown keys.
"""

from __future__ import annotations

from quafka_proto.message import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
)

CLIENT_SOFTWARE = "quafka"
"""The `client_software_name` (KIP-511) of our own client."""


class DescribeGroupLagRequest(Request, key=20550, versions="0", flexible="0+"):
    groups: list[str] = array(string())


class GroupLagPartition(Struct):
    """The lag of a group in a partition; -1: unknown.

    `lag` counts records; `behind_ms` is the age of the first unconsumed record; `catch_up_ms` the
    time to consume all of them at the present pace.
    """

    partition_index: int = int32()
    log_start_offset: int = int64()
    high_watermark: int = int64()
    committed_offset: int = int64(default=-1)
    lag: int = int64(default=-1)
    behind_ms: int = int64(default=-1)
    catch_up_ms: int = int64(default=-1)
    member_id: str | None = string(default=None, nullable="0+")


class GroupLagTopic(Struct):
    name: str = string()
    partitions: list[GroupLagPartition] = array(GroupLagPartition)


class GroupLagMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(default=None, nullable="0+")
    client_id: str = string()
    client_host: str = string()


class GroupLag(Struct):
    error_code: int = int16()
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[GroupLagMember] = array(GroupLagMember)
    topics: list[GroupLagTopic] = array(GroupLagTopic)


class DescribeGroupLagResponse(Response, key=20550, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    server_time_ms: int = int64(default=-1)
    groups: list[GroupLag] = array(GroupLag)


class DescribeGatewayRequest(Request, key=20551, versions="0-1", flexible="0+"):
    pass


class GatewayBroker(Struct):
    """A broker from the gateway's view; -1: unknown.

    `away_ms`: how long ops have not reached it; `op_us`: the duration of an op just now; `rtt_us`:
    the smoothed round-trip time of the mesh; `problem`: the reason why the broker cannot work.
    `snapshot_interval_ms`: the interval of its scheduled snapshots; 0: it makes none.
    """

    address: str = string()
    connected: bool = boolean()
    away_ms: int = int64()
    answered: bool = boolean()
    version: str = string()
    time_ms: int = int64(default=-1)
    problem: str = string()
    op_us: int = int64(default=-1)
    rtt_us: int = int64(default=-1)
    datagram_bytes: int = int32(default=-1)
    packets_sent: int = int64()
    packets_lost: int = int64()
    snapshot_interval_ms: int = int64("1+")
    snapshot_age_ms: int = int64("1+", default=-1)
    snapshot_problem: str = string("1+")


class DescribeGatewayResponse(Response, key=20551, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32()
    server_time_ms: int = int64(default=-1)
    version: str = string()
    brokers: list[GatewayBroker] = array(GatewayBroker)
