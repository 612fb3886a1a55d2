"""Ops 0x88 to 0x8B: describe, alter and list the configs of groups."""

from __future__ import annotations

from quafka_broker.groups import configs as group_configs
from quafka_broker.groups.configs import Configs, GroupConfigError
from quafka_broker.partitions.errors import StorageError
from quafka_broker.state import BrokerState
from quafka_loop.slices import listed
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.admin import NamedValue
from quafka_mesh_ops.ops.group_configs import (
    AlterGroupConfigs,
    AlterGroupConfigsResp,
    DescribeGroupConfigs,
    DescribeGroupConfigsResp,
    ListGroupConfigs,
    ListGroupConfigsResp,
    OwnConfigs,
    ShareGroupConfigs,
)
from quafka_mesh_ops.ops.shares import ShareConfigs
from quafka_proto.errors import ErrorCode


async def describe(
    state: BrokerState, context: OpContext, op: DescribeGroupConfigs
) -> DescribeGroupConfigsResp:
    """Describe the configs of a group that sets none, and the values that each group sets."""
    found = await listed(
        OwnConfigs(
            [NamedValue(*item) for item in state.group_configs.of(context.org_id, name).items()]
        )
        for name in op.groups
    )
    return DescribeGroupConfigsResp(group_configs.describe(state.configs.broker), found)


async def alter(
    state: BrokerState, context: OpContext, op: AlterGroupConfigs
) -> AlterGroupConfigsResp:
    """Make all of an op's changes to one group's configs, or none."""
    store, org = state.group_configs, context.org_id

    def change(present: Configs) -> dict[str, str]:
        broker = state.configs.broker
        return group_configs.changed(broker, present, op.changes, replaces=op.replace)

    try:
        if op.validate_only:
            present = store.of(org, op.group)
            if change(present) and not present:
                store.check_room(org, op.group)
        else:
            await store.change(org, op.group, change)
    except GroupConfigError as e:
        return AlterGroupConfigsResp(ErrorCode.INVALID_CONFIG, str(e))
    except StorageError as e:
        return AlterGroupConfigsResp(ErrorCode.KAFKA_STORAGE_ERROR, str(e))
    return AlterGroupConfigsResp()


async def list_groups(
    state: BrokerState, context: OpContext, op: ListGroupConfigs
) -> ListGroupConfigsResp:
    """List the org's groups that have configs."""
    return ListGroupConfigsResp(state.group_configs.names(context.org_id))


async def of_share_group(
    state: BrokerState, context: OpContext, op: ShareGroupConfigs
) -> ShareConfigs:
    """The configs for the delivery of a share group's records."""
    return state.group_configs.share(context.org_id, op.group)
