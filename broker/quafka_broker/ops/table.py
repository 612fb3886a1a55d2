"""The table of ops: the handler of each op code.

A handler takes the broker's state, the op's context and the op; it returns the answer, or raises
OpFailedError.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from quafka_broker.journals.internal_topics import INTERNAL_ORG
from quafka_broker.ops import (
    branches,
    compaction,
    configs,
    consumer_groups,
    delete_records,
    describe_producers,
    epoch_ends,
    fetch,
    group_admin,
    group_configs,
    group_lag,
    groups,
    leases,
    list_offsets,
    log_dirs,
    offsets,
    partitions,
    places,
    previous_ops,
    probe,
    produce,
    producer_ids,
    security,
    share_groups,
    shares,
    snapshots,
    topics,
    transactions,
)
from quafka_broker.state import BrokerState
from quafka_broker.status.op_stats import BrokerStats, OpStats
from quafka_loop import clock
from quafka_mesh_ops.errors import OpFailedError
from quafka_mesh_ops.grants import LAST_ORG
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.admin import (
    AlterBrokerConfigs,
    AlterTopicConfigs,
    CreatePartitions,
    DescribeBroker,
    DescribeCompaction,
    DescribeLogDir,
    DescribeProducersOps,
    DescribeTopicConfigs,
)
from quafka_mesh_ops.ops.base import AnyStruct, OpCode
from quafka_mesh_ops.ops.branches import FinishTransactions, JoinTransaction, ResolveTransactions
from quafka_mesh_ops.ops.consumer_groups import ConsumerHeartbeat, DescribeConsumerGroups
from quafka_mesh_ops.ops.group_configs import (
    AlterGroupConfigs,
    DescribeGroupConfigs,
    ListGroupConfigs,
    ShareGroupConfigs,
)
from quafka_mesh_ops.ops.group_offsets import (
    CommitOffsets,
    CommittedOffsets,
    DeleteOffsets,
    ForgetTopic,
)
from quafka_mesh_ops.ops.groups import (
    DeleteGroups,
    DescribeGroups,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    SyncGroup,
)
from quafka_mesh_ops.ops.lag import GroupLag, LagOfOffsets
from quafka_mesh_ops.ops.leases import HoldLease
from quafka_mesh_ops.ops.offsets import EpochEndOps, ListOffsetsOps
from quafka_mesh_ops.ops.places import OpenPlaces
from quafka_mesh_ops.ops.previous import (
    PreviousDescribeConsumerGroups,
    PreviousDescribeShareGroups,
)
from quafka_mesh_ops.ops.probe import Probe
from quafka_mesh_ops.ops.records import DeleteRecordsOps, FetchOps, InitProducerId, ProduceOps
from quafka_mesh_ops.ops.security import (
    AlterOrg,
    AlterQuotas,
    AlterUsers,
    CreateAcls,
    DeleteAcls,
    WatchSecurity,
)
from quafka_mesh_ops.ops.share_groups import (
    CreateShareGroup,
    DescribeShareGroups,
    ForgetShareTopics,
    ShareGroupTopics,
    ShareHeartbeat,
)
from quafka_mesh_ops.ops.shares import (
    AcknowledgeRecords,
    AcquireRecords,
    AlterShareOffsets,
    DeleteShareOffsets,
    DescribeShareOffsets,
    ReleaseRecords,
)
from quafka_mesh_ops.ops.snapshots import (
    PinOrg,
    PinSnapshot,
    ReadOrgPinned,
    ReadPinned,
    UnpinOrg,
    UnpinSnapshot,
)
from quafka_mesh_ops.ops.topics import CreateTopic, DeleteTopic, DescribeTopics
from quafka_mesh_ops.ops.transactions import (
    AddOffsets,
    AddPartitions,
    CommitTxnOffsets,
    DescribeTransactions,
    EndTransaction,
    InitTransactions,
    ListTransactions,
    WriteMarkers,
)
from quafka_proto.errors import ErrorCode

_UNKNOWN_ERROR = ErrorCode.UNKNOWN_SERVER_ERROR

Handler = Callable[[BrokerState, OpContext, Any], Awaitable[AnyStruct]]

OPS: dict[OpCode, Handler] = dict(
    (
        ProduceOps.handled_by(produce.handle),
        FetchOps.handled_by(fetch.handle),
        ListOffsetsOps.handled_by(list_offsets.handle),
        DeleteTopic.handled_by(topics.delete),
        DescribeTopics.handled_by(topics.describe),
        CreateTopic.handled_by(topics.create),
        InitProducerId.handled_by(producer_ids.handle),
        DeleteRecordsOps.handled_by(delete_records.handle),
        EpochEndOps.handled_by(epoch_ends.handle),
        HoldLease.handled_by(leases.handle),
        JoinGroup.handled_by(groups.join),
        SyncGroup.handled_by(groups.sync),
        Heartbeat.handled_by(groups.heartbeat),
        LeaveGroup.handled_by(groups.leave),
        ConsumerHeartbeat.handled_by(consumer_groups.heartbeat),
        DescribeConsumerGroups.handled_by(consumer_groups.describe),
        CommitOffsets.handled_by(offsets.commit),
        CommittedOffsets.handled_by(offsets.committed),
        DeleteOffsets.handled_by(group_admin.delete_offsets),
        ListGroups.handled_by(group_admin.list_groups),
        DescribeGroups.handled_by(group_admin.describe),
        DeleteGroups.handled_by(group_admin.delete),
        Probe.handled_by(probe.handle),
        OpenPlaces.handled_by(places.handle),
        CreatePartitions.handled_by(partitions.create),
        DescribeTopicConfigs.handled_by(configs.describe),
        DescribeGroupConfigs.handled_by(group_configs.describe),
        AlterGroupConfigs.handled_by(group_configs.alter),
        ListGroupConfigs.handled_by(group_configs.list_groups),
        ShareGroupConfigs.handled_by(group_configs.of_share_group),
        ShareHeartbeat.handled_by(share_groups.heartbeat),
        DescribeShareGroups.handled_by(share_groups.describe),
        PreviousDescribeConsumerGroups.handled_by(previous_ops.describe_consumer_groups),
        PreviousDescribeShareGroups.handled_by(previous_ops.describe_share_groups),
        CreateShareGroup.handled_by(share_groups.create),
        ShareGroupTopics.handled_by(share_groups.topics),
        ForgetShareTopics.handled_by(share_groups.forget),
        AlterTopicConfigs.handled_by(configs.alter),
        DescribeBroker.handled_by(configs.describe_broker),
        AlterBrokerConfigs.handled_by(configs.alter_broker),
        DescribeLogDir.handled_by(log_dirs.describe),
        DescribeProducersOps.handled_by(describe_producers.handle),
        DescribeCompaction.handled_by(compaction.describe),
        ForgetTopic.handled_by(offsets.delete_topic_offsets),
        GroupLag.handled_by(group_lag.handle),
        LagOfOffsets.handled_by(group_lag.of_offsets),
        PinSnapshot.handled_by(snapshots.pin),
        ReadPinned.handled_by(snapshots.read),
        UnpinSnapshot.handled_by(snapshots.unpin),
        PinOrg.handled_by(snapshots.pin_org),
        ReadOrgPinned.handled_by(snapshots.read_org_pinned),
        UnpinOrg.handled_by(snapshots.unpin_org),
        InitTransactions.handled_by(transactions.init),
        AddPartitions.handled_by(transactions.add_partitions),
        AddOffsets.handled_by(transactions.add_offsets),
        CommitTxnOffsets.handled_by(transactions.commit_offsets),
        EndTransaction.handled_by(transactions.end),
        WriteMarkers.handled_by(transactions.write_markers),
        DescribeTransactions.handled_by(transactions.describe),
        ListTransactions.handled_by(transactions.list_ids),
        JoinTransaction.handled_by(branches.join),
        FinishTransactions.handled_by(branches.finish),
        ResolveTransactions.handled_by(branches.resolve),
        WatchSecurity.handled_by(security.watch),
        AlterUsers.handled_by(security.alter_users),
        CreateAcls.handled_by(security.create_acls),
        DeleteAcls.handled_by(security.delete_acls),
        AlterQuotas.handled_by(security.alter_quotas),
        AlterOrg.handled_by(security.alter_org),
        AcquireRecords.handled_by(shares.acquire),
        AcknowledgeRecords.handled_by(shares.acknowledge),
        ReleaseRecords.handled_by(shares.release),
        DescribeShareOffsets.handled_by(shares.describe),
        AlterShareOffsets.handled_by(shares.alter),
        DeleteShareOffsets.handled_by(shares.delete),
    )
)
"""The handler of each op code."""


def handlers(
    state: BrokerState, stats: BrokerStats
) -> dict[OpCode, Callable[[OpContext, Any], Awaitable[AnyStruct]]]:
    """The handlers for a mesh server: bound to the broker's state, and counted."""
    return {code: partial(_count, handler, state, stats.of(code)) for code, handler in OPS.items()}


def serve(
    handler: Handler, state: BrokerState, context: OpContext, op: Any
) -> Awaitable[AnyStruct]:
    """Run a handler for an org. Org 0 is the broker's own; no gateway may name it.

    Not a coroutine: each coroutine on the way to a wait makes the step after it more expensive.
    """
    if not INTERNAL_ORG < context.org_id <= LAST_ORG:
        raise OpFailedError(ErrorCode.INVALID_REQUEST)
    return handler(state, context, op)


async def _count(
    handler: Handler, state: BrokerState, stats: OpStats, context: OpContext, op: Any
) -> AnyStruct:
    """Serve and count an op."""
    began = clock.perf_counter()
    try:
        answer = await serve(handler, state, context, op)
    except Exception as e:
        stats.failed(e.error_code if isinstance(e, OpFailedError) else _UNKNOWN_ERROR)
        raise
    stats.answered(context, clock.perf_counter() - began, answer)
    return answer
