"""Ops on the shards of a cluster and their owners, 0x34 to 0x36.

A *shard* is one log and all state derived from it; a broker on a local folder has only shard 0. A
connection is for the shards that its `OpenShard` ops name. A connection without one is for shard 0.
The connections of earlier gateways are for one shard each. The other two ops are the same at every
broker.
"""

from __future__ import annotations

from quafka_mesh_ops.ops.base import AnyOp, Op, OpCode, WireStruct, wire_struct


@wire_struct
class OpenShardResp(WireStruct):
    """The shard is here, and ops for it may be sent on this connection.

    `several`: the connection may be for further shards; SHARD frames name the shard of an op. A
    broker that does not know of this has no such field, and takes all ops as for this shard.
    `traceparent`: the trace of the takeover, if the broker has taken the shard over just now.
    """

    several: bool = False
    traceparent: str = ""


@wire_struct
class OpenShard(Op[OpenShardResp]):
    """Name a shard that a connection is for; NOT_LEADER_OR_FOLLOWER: it is not here.

    The mesh itself answers it, before all ops on the shard. `several`: the connection may be for
    further shards; otherwise it is the only one, and another is refused with INVALID_REQUEST.
    """

    code = OpCode.OPEN_SHARD
    shard: int
    several: bool = False


@wire_struct
class ShardOwner(WireStruct):
    """Where a shard is. An empty `node`: it has no owner at the moment.

    Attributes:
        epoch: grows with each owner.
        node: the node id of the owner.
        address: host:port of the owner's mesh listener.
    """

    epoch: int
    node: str
    address: str


@wire_struct
class ClusterBroker(WireStruct):
    """A broker that is there. `draining`: it gives up its shards."""

    node: str
    address: str
    draining: bool = False


@wire_struct
class ClusterMapResp(WireStruct):
    """The shards and the brokers of a cluster, as one broker knows them.

    Attributes:
        cluster_id: empty: the broker has a local folder, and is a cluster by itself.
        version: stands for these contents at this broker.
        shards: the owner of each shard, by its number.
        brokers: the brokers that are there.
        by_name: groups and transactional ids are hashed to shards by their names, as topics are;
            otherwise all those of an org are in one shard.
    """

    cluster_id: str
    version: int
    shards: list[ShardOwner]
    brokers: list[ClusterBroker]
    by_name: bool = False


@wire_struct
class ClusterMap(Op[ClusterMapResp]):
    """Ask for the shards and their owners.

    The broker parks the op for `max_wait_ms` at most while `known` is its version; -1: none is.
    """

    code = OpCode.CLUSTER_MAP
    reads = True
    waits_for_news = True
    parks = True
    known: int = -1
    max_wait_ms: int = 0


@wire_struct
class LookAtShardsResp(WireStruct):
    """The broker will look."""


@wire_struct
class LookAtShards(Op[LookAtShardsResp]):
    """From one broker to another: owners have changed, look at the manifests now.

    Attributes:
        offered: a shard that its owner has just given up for this broker; None: no shard was.
    """

    code = OpCode.LOOK_AT_SHARDS
    offered: int | None = None


ALL: tuple[type[AnyOp], ...] = (OpenShard, ClusterMap, LookAtShards)
