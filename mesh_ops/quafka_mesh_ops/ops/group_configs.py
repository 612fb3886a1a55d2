"""Ops on the configs of groups, 0x88 to 0x8B, at the broker that coordinates them."""

from __future__ import annotations

from quafka_mesh_ops.ops.admin import ConfigDescription, NamedValue
from quafka_mesh_ops.ops.base import AnyOp, Op, OpCode, WireStruct, wire_struct
from quafka_mesh_ops.ops.shares import ShareConfigs
from quafka_proto.schema.configs import IncrementalAlterableConfig


@wire_struct
class OwnConfigs(WireStruct):
    """The configs that a group sets."""

    own: list[NamedValue]


@wire_struct
class DescribeGroupConfigsResp(WireStruct):
    """The configs of a group that sets none, and one answer per group, in the request's order."""

    defaults: list[ConfigDescription]
    groups: list[OwnConfigs]


@wire_struct
class DescribeGroupConfigs(Op[DescribeGroupConfigsResp]):
    """Describe the configs of groups, which need not exist."""

    code = OpCode.DESCRIBE_GROUP_CONFIGS
    reads = True
    groups: list[str]


@wire_struct
class AlterGroupConfigsResp(WireStruct):
    """The result."""

    error_code: int = 0
    error_message: str = ""


@wire_struct
class AlterGroupConfigs(Op[AlterGroupConfigsResp]):
    """Change a group's configs, all or none. Durable and in effect once it is answered.

    `replace`: configs of the group that the changes do not name are deleted.
    """

    code = OpCode.ALTER_GROUP_CONFIGS
    group: str
    changes: list[IncrementalAlterableConfig]
    replace: bool = False
    validate_only: bool = False


@wire_struct
class ListGroupConfigsResp(WireStruct):
    """The groups that have configs, by name."""

    groups: list[str]


@wire_struct
class ListGroupConfigs(Op[ListGroupConfigsResp]):
    """List the groups that have configs."""

    code = OpCode.LIST_GROUP_CONFIGS
    reads = True


@wire_struct
class ShareGroupConfigs(Op[ShareConfigs]):
    """How the records of a share group are delivered: for the ops on its records."""

    code = OpCode.SHARE_GROUP_CONFIGS
    reads = True
    group: str


ALL: tuple[type[AnyOp], ...] = (
    DescribeGroupConfigs, AlterGroupConfigs, ListGroupConfigs, ShareGroupConfigs,
)  # fmt: skip
