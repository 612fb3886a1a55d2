"""Our own APIs, for tools that connect as Kafka clients: DescribeGroupLag (key 20550),
DescribeGateway (20551), DescribeCompaction (20552), DescribeOrgs (20553), AlterOrg (20554).

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
    float64,
    int16,
    int32,
    int64,
    string,
    struct,
)

CLIENT_SOFTWARE = "quafka"
"""The `client_software_name` (KIP-511) of our own client."""


class DescribeGroupLagRequest(Request, key=20550, versions="0", flexible="0+"):
    groups: list[str] = array(string())


class GroupLagPartition(Struct):
    """The lag of a group in a partition; -1: unknown.

    `lag` counts records; `behind_ms` is the age of the first unconsumed record; `catch_up_ms` is
    the time to consume all of them at the present rate.
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


class DescribedGroupLag(Struct):
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
    groups: list[DescribedGroupLag] = array(DescribedGroupLag)


class DescribeGatewayRequest(Request, key=20551, versions="0-7", flexible="0+"):
    pass


class GatewayServer(Struct):
    """The store of some topics' records: a Redis server, or log folders of Kafka.

    `problem`: empty if it can be read; `kind`: "redis" or "kafka".
    """

    name: str = string("3+")
    problem: str = string("3+")
    detail: str = string("3+")
    topics: int = int32("3+")
    kind: str = string("3+", default="redis")


class GatewayBroker(Struct):
    """A broker from the gateway's view; -1: unknown.

    `away_ms`: how long it has been unreachable for ops; `op_us`: the duration of an op just now;
    `rtt_us`: the smoothed round-trip time of the mesh; `problem`: the reason why the broker cannot
    work or, if it is not connected, why it refuses the gateway's connections.
    `snapshot_interval_ms`: the interval of its scheduled snapshots; 0: it makes none.
    `oldest_transaction_ms`: the age of its oldest open transaction; `overdue_transaction_ms`: how
    long the most overdue one has exceeded its timeout. `unfinished_transactions`: those that other
    brokers have not ended yet; `unfinished_transaction_ms`: how long ago the first of them ended at
    this one. `shard`: the number of a shard that the broker has now; -1: the cluster has no shards.
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
    open_transactions: int = int32("2+")
    oldest_transaction_ms: int = int64("2+", default=-1)
    overdue_transaction_ms: int = int64("2+")
    servers: list[GatewayServer] = array(GatewayServer, "3+")
    unfinished_transactions: int = int32("4+")
    unfinished_transaction_ms: int = int64("4+")
    shard: int = int32("7+", default=-1)


class GatewayListener(Struct):
    """A listener. `open`: clients need no name; `loopback`: only the gateway's host reaches it."""

    name: str = string("6+")
    protocol: str = string("6+")
    address: str = string("6+")
    open: bool = boolean("6+")
    loopback: bool = boolean("6+")


class DescribeGatewayResponse(Response, key=20551, versions="0-7", flexible="0+"):
    """`authorizer`: whether ACLs are enforced. `super_users`: their number. `security_problem`: why
    news of users, ACLs and quotas do not arrive; empty if they do. From `listeners` on, only the
    cluster's operators get values.
    """

    throttle_time_ms: int = int32()
    server_time_ms: int = int64(default=-1)
    version: str = string()
    brokers: list[GatewayBroker] = array(GatewayBroker)
    error_code: int = int16("5+")
    listeners: list[GatewayListener] = array(GatewayListener, "6+")
    authorizer: bool = boolean("6+")
    super_users: int = int32("6+")
    security_problem: str = string("6+")


class DescribeCompactionRequest(Request, key=20552, versions="0", flexible="0+"):
    topic: str = string()


class PartitionCompaction(Struct):
    """The compaction of a partition; bytes are estimates.

    `dirty_bytes` are those that the next pass may compact; `due`: whether it includes the
    partition; `last_ms`: when the last pass ended, -1: none since the broker's start;
    `bytes_before`, `bytes_after`: the bytes that this pass has examined and kept.
    """

    partition_index: int = int32()
    clean_bytes: int = int64()
    dirty_bytes: int = int64()
    due: bool = boolean()
    last_ms: int = int64(default=-1)
    bytes_before: int = int64()
    bytes_after: int = int64()


class DescribeCompactionResponse(Response, key=20552, versions="0", flexible="0+"):
    """Without partitions: the topic is not compacted."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    partitions: list[PartitionCompaction] = array(PartitionCompaction)


class DescribeOrgsRequest(Request, key=20553, versions="0", flexible="0+"):
    """`orgs`: by their names or ids; null: all of them."""

    orgs: list[str] | None = array(string(), nullable="0+")


class OrgLimit(Struct):
    name: str = string()
    value: float = float64()


class Org(Struct):
    """An org.

    `state`: "active", "suspended" or "deleting". `connections`, `requests`, `received_bytes` and
    `sent_bytes` are of this gateway process, since the org's clients came to it.
    """

    org_id: int = int64()
    name: str = string()
    state: str = string()
    limits: list[OrgLimit] = array(OrgLimit)
    connections: int = int32()
    requests: int = int64()
    received_bytes: int = int64()
    sent_bytes: int = int64()


class DescribeOrgsResponse(Response, key=20553, versions="0", flexible="0+"):
    """Orgs that do not exist are left out."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable="0+")
    orgs: list[Org] = array(Org)


class AlterOrgRequest(Request, key=20554, versions="0", flexible="0+"):
    """Create an org, or change one.

    `org`: its name or its id. `create`: it must not exist; `org_id` 0 takes a free id. Otherwise it
    must exist, and empty `new_name` and `state` change nothing. `limits` are set and
    `removed_limits` removed; other limits are unchanged.
    """

    org: str = string()
    create: bool = boolean()
    org_id: int = int64()
    new_name: str = string()
    state: str = string()
    limits: list[OrgLimit] = array(OrgLimit)
    removed_limits: list[str] = array(string())


class AlterOrgResponse(Response, key=20554, versions="0", flexible="0+"):
    """The org after the change, if there is no error."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable="0+")
    org: Org | None = struct(Org, default=None, nullable="0+")
