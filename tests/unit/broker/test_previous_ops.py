"""A gateway of the previous version gets from its ops what this version's ops return."""

from __future__ import annotations

from typing import Any

import pytest

from quafka_broker.ops.table import OPS
from quafka_mesh_ops.ops import previous
from quafka_mesh_ops.ops.base import AnyOp
from quafka_mesh_ops.ops.consumer_groups import ConsumerHeartbeat, DescribeConsumerGroups
from quafka_mesh_ops.ops.share_groups import DescribeShareGroups, ShareHeartbeat
from quafka_proto.errors import ErrorCode
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import ORG, context, running_state

_JOIN = ConsumerHeartbeat(
    "g", "m", 0, "static", "rack", 60_000, ["t"], owned=[],
    client_id="client", client_host="10.0.0.1", is_whole=True,
)  # fmt: skip
_JOIN_SHARE = ShareHeartbeat("g", "m", 0, None, ["t"], "client", "10.0.0.1", is_whole=True)


@pytest.mark.parametrize(
    ("join", "op", "earlier"),
    [
        (_JOIN, DescribeConsumerGroups, previous.PreviousDescribeConsumerGroups),
        (_JOIN_SHARE, DescribeShareGroups, previous.PreviousDescribeShareGroups),
    ],
)
async def test_a_described_group(join: AnyOp, op: Any, earlier: Any) -> None:
    async with running_state(MemoryDisk()) as state:

        async def call(op: AnyOp) -> Any:
            return await OPS[op.code](state, context(), op)

        topic, _ = await state.topics.create(ORG, "t", 2)
        await call(join)
        now = (await call(op(["g", "no"]))).groups
        then = (await call(earlier(["g", "no"]))).groups
        assert [each.group for each in then] == ["g", "no"]
        assert [each.error_code for each in then] == [0, ErrorCode.GROUP_ID_NOT_FOUND]
        assert (then[1].error, then[1].members) == (now[1].error_message, None)
        group, its = then[0], now[0]
        assert (group.state, group.epoch) == (its.group_state, its.group_epoch)
        assert group.assignment_epoch == its.assignment_epoch
        assert group.assignor == its.assignor_name != ""
        (old,), (new,) = group.members, its.members
        shown = (old.member_id, old.member_epoch, old.client_id, old.client_host, old.topics)
        assert shown == ("m", new.member_epoch, "client", "10.0.0.1", ["t"])
        assert (old.instance_id, old.rack_id) == (new.instance_id or "", new.rack_id or "")
        assert (
            old.assignment == [previous.PreviousPartitions("t", topic.uuid, [0, 1])] == old.target
        )
        assert not old.is_classic
