"""Settings of the crash workload: users, rules, quotas, an org and the configs of a group.

Each changes and goes. After a power cut a setting has the value of its last answer, or one that was
asked for later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from quafka_broker.ops import security as ops
from quafka_broker.ops.group_configs import alter as alter_configs
from quafka_broker.partitions.errors import StorageError
from quafka_broker.state import BrokerState
from quafka_mesh_ops.ops.group_configs import AlterGroupConfigs
from quafka_mesh_ops.ops.security import (
    AclFilter,
    AclRecord,
    AlterOrg,
    AlterQuotas,
    AlterUsers,
    CreateAcls,
    DeleteAcls,
    QuotaChange,
    ScramCredential,
    UserChange,
)
from quafka_proto.config_kinds import ConfigOperation
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.configs import IncrementalAlterableConfig
from quafka_proto.schema.quafka import OrgLimit
from quafka_proto.schema.quotas import EntityData, ValueData
from tests.unit.broker.tools import ORG, context

_MECHANISM = "SCRAM-SHA-256"
_KEY, _LIMIT = "producer_byte_rate", "max.topics"
_CONFIG, _CONFIG_UNIT = "share.record.lock.duration.ms", 4
_OTHER_ORG = 7
_LITERAL, _TOPIC, _READ, _ALLOW = 3, 2, 3, 3
NAMES = ("user a", "user b", "rule a", "rule b", "quota a", "quota b", "org", "config a")
"""The kind of a setting is its first word."""


@dataclass
class Change:
    """A value (0: none) and the numbers of disk operations at its request and its answer."""

    value: int
    asked: int
    answered: int | None = None


@dataclass
class Settings:
    """What was asked for and answered, by name, in order: one change at a time."""

    changes: dict[str, list[Change]] = field(default_factory=dict)

    async def change_one(self, state: BrokerState, rng: Random, now: Callable[[], int]) -> None:
        """Change a random setting; repeated while the disk is full.

        Raises:
            StorageError: the log has failed.
        """
        name = rng.choice(NAMES)
        value = rng.choice((0, 1)) if name.startswith("rule") else rng.choice((0, 5_000, 6_000))
        if name == "org":
            value = max(value, 1)  # its record stays
        change = Change(value, now())
        self.changes.setdefault(name, []).append(change)
        while await _put(state, name, value) == ErrorCode.KAFKA_STORAGE_ERROR:
            if state.log.failure is not None:
                raise StorageError("the log has failed")
        change.answered = now()

    def verify(self, state: BrokerState, operations: int) -> None:
        """Check what is left after a cut after a number of operations."""
        assert not state.security.journal.incomplete
        for name in NAMES:
            mine = [each for each in self.changes.get(name, []) if each.asked <= operations]
            allowed = {0}
            for each in mine:
                known = each.answered is not None and each.answered <= operations
                allowed = {each.value} if known else allowed | {each.value}
            assert _get(state, name) in allowed, name


async def _put(state: BrokerState, name: str, value: int) -> int:
    """Returns the error; any but one of the disk's fails."""
    code = await _PUT[name.split()[0]](state, name, value)
    assert code in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR), ErrorCode(code).name
    return code


async def _put_user(state: BrokerState, name: str, value: int) -> int:
    credential = ScramCredential(_MECHANISM, b"salt", value, bytes(32), bytes(32))
    change = UserChange(name, _MECHANISM, credential if value else None)
    if not value and not _get(state, name):
        return ErrorCode.NONE  # a user that is not there cannot be deleted
    answer = await ops.alter_users(state, context(), AlterUsers([change]))
    return answer.error_codes[0]


async def _put_rule(state: BrokerState, name: str, value: int) -> int:
    if value:
        answer = await ops.create_acls(state, context(), CreateAcls([_rule(name)]))
        return answer.error_codes[0]
    only = AclFilter(_TOPIC, name, _LITERAL, None, None, _READ, _ALLOW)
    deleted = await ops.delete_acls(state, context(), DeleteAcls([only]))
    return deleted.results[0].error_code


async def _put_quota(state: BrokerState, name: str, value: int) -> int:
    entity = [EntityData("user", name)]
    change = QuotaChange(
        entity, [ValueData(_KEY, float(value))] if value else [], [] if value else [_KEY]
    )
    answer = await ops.alter_quotas(state, context(), AlterQuotas([change]))
    return answer.error_codes[0]


async def _put_org(state: BrokerState, name: str, value: int) -> int:
    create = _OTHER_ORG not in state.security.table.orgs
    op = AlterOrg(_OTHER_ORG, name, "", [OrgLimit(_LIMIT, float(value))], create=create)
    return (await ops.alter_org(state, context(), op)).error_code


async def _put_config(state: BrokerState, name: str, value: int) -> int:
    operation = ConfigOperation.SET if value else ConfigOperation.DELETE
    change = IncrementalAlterableConfig(
        _CONFIG, operation, str(_CONFIG_UNIT * value) if value else None
    )
    return (await alter_configs(state, context(), AlterGroupConfigs(name, [change]))).error_code


_PUT = {
    "user": _put_user, "rule": _put_rule, "quota": _put_quota, "org": _put_org,
    "config": _put_config,
}  # fmt: skip


def _rule(name: str) -> AclRecord:
    return AclRecord(ORG, _TOPIC, name, _LITERAL, "User:a", "*", _READ, _ALLOW)


def _get(state: BrokerState, name: str) -> int:
    its = state.security.table.of(ORG)
    kind = name.split()[0]
    if kind == "user":
        user = its.users.get(name)
        return user.credentials[0].iterations if user is not None else 0
    if kind == "rule":
        return int(_rule(name) in its.rules)
    if kind == "quota":
        found = [q for q in its.quotas.values() if q.entity[0].entity_name == name]
        return int(found[0].values[0].value) if found else 0
    if kind == "config":
        return int(state.group_configs.of(ORG, name).get(_CONFIG, "0")) // _CONFIG_UNIT
    org = state.security.table.orgs.get(_OTHER_ORG)
    return int(org.limits[0].value) if org is not None else 0
