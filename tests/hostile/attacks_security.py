"""Users, ACLs and quotas: as many as are allowed, and questions about all of them at once."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from quafka_broker.config.settings import BrokerConfig
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.errors import OpFailedError
from quafka_mesh_ops.ops.base import Op, R
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
    WatchSecurity,
    WatchSecurityResp,
)
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.quafka import OrgLimit
from quafka_proto.schema.quotas import EntityData, ValueData
from quafka_telemetry.tracing import Tracer
from tests.hostile.arena import Arena, run
from tests.hostile.catalogue import attack

_ORGS = count(7_000)
_PER_OP = 2_000
_MOST = BrokerConfig.security_max_acls_per_org
_SHA256 = "SCRAM-SHA-256"
_EVERY_RULE = AclFilter(1, None, 1, None, None, 1, 1)
_FULL = ErrorCode.POLICY_VIOLATION


class _Node:
    """A node that the broker allows, and that does what it likes."""

    def __init__(self, arena: Arena) -> None:
        self.org = next(_ORGS)
        self.client = MeshClient(
            *arena.mesh_address, arena.gateway_identity, {arena.broker_id}, Tracer()
        )

    async def __aenter__(self) -> _Node:
        await self.client.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.call(AlterOrg(self.org, "", "deleting", None))
        await self.client.close()

    async def call(self, op: Op[R]) -> R:
        return await self.client.call(op, org_id=self.org, deadline=60)


def _rule(org: int, number: int) -> AclRecord:
    return AclRecord(org, 2, f"{number}-".ljust(200, "r"), 4, f"User:{number}", "*", 3, 2)


def _user(number: int) -> UserChange:
    credential = ScramCredential(_SHA256, bytes(16), 4_096, bytes(32), bytes(32))
    return UserChange(f"user {number}", _SHA256, credential)


def _quota(number: int) -> QuotaChange:
    entity = [EntityData("user", f"user {number}"), EntityData("client-id", None)]
    return QuotaChange(entity, [ValueData("producer_byte_rate", 1.0)], [])


@attack("a node fills an org with users, ACLs and quotas, and asks for all of them again and again",
        of_clients=False, part_of_tests=True)  # fmt: skip
def full(arena: Arena) -> None:
    run(_full(arena))


async def _full(arena: Arena) -> None:
    async with _Node(arena) as node:
        for at in range(0, _MOST, _PER_OP):
            numbers = range(at, at + _PER_OP)
            rules = [_rule(node.org, number) for number in numbers]
            assert not any((await node.call(CreateAcls(rules))).error_codes)
            assert not any((await node.call(AlterUsers(list(map(_user, numbers))))).error_codes)
            assert not any((await node.call(AlterQuotas(list(map(_quota, numbers))))).error_codes)
        one_more = [
            await node.call(CreateAcls([_rule(node.org, _MOST)])),
            await node.call(AlterUsers([_user(_MOST)])),
            await node.call(AlterQuotas([_quota(_MOST)])),
        ]
        assert [answer.error_codes for answer in one_more] == [[_FULL]] * 3
        await asyncio.gather(*(_read_all(node) for _ in range(4)))
        many = await node.call(DeleteAcls([_EVERY_RULE] * _PER_OP))
        assert {result.error_code for result in many.results} == {_FULL}
        (gone,) = (await node.call(DeleteAcls([_EVERY_RULE]))).results
        assert len(gone.acls) == _MOST


async def _read_all(node: _Node) -> None:
    answer = await node.call(WatchSecurity(b"", -1, 0))
    found = len(answer.changes)
    while answer.more:
        answer = await node.call(_after(answer))
        assert not answer.restart
        found += len(answer.changes)
    assert found >= 3 * _MOST


def _after(answer: WatchSecurityResp, max_wait_ms: int = 0) -> WatchSecurity:
    return WatchSecurity(answer.incarnation, answer.version, max_wait_ms, answer.began)


@attack("a node parks thousands of watches, and changes a user again and again", of_clients=False)
def parked(arena: Arena) -> None:
    run(_parked(arena))


async def _parked(arena: Arena) -> None:
    async with _Node(arena) as node:
        seen = await node.call(WatchSecurity(b"", -1, 0))
        while seen.more:
            seen = await node.call(_after(seen))
        watch = _after(seen, 60_000)
        watches = [asyncio.create_task(node.call(watch)) for _ in range(3_000)]
        for number in range(20):
            await node.call(AlterUsers([_user(number)]))
        answers = await asyncio.gather(*watches)
        assert any(answer.changes for answer in answers)


@attack("records of security that cannot be", part_of_tests=True,
        of_clients=False)  # fmt: skip
def impossible(arena: Arena) -> None:
    run(_impossible(arena))


async def _impossible(arena: Arena) -> None:
    limits = [OrgLimit("max.topics", float("nan"))]
    async with _Node(arena) as node:
        assert (await node.call(AlterOrg(node.org, "x" * 10_000, "", None, create=True))).error_code
        assert (await node.call(AlterOrg(node.org, "x", "", limits, create=True))).error_code
        for number in (-1, 1 << 63, (1 << 64) - 1):
            wrong = AclRecord(node.org, number, "t", number, "User:a", "*", number, number)
            assert (await node.call(CreateAcls([wrong]))).error_codes == [42]
            (refused,) = (
                await node.call(DeleteAcls([AclFilter(number, "t", 1, None, None, 1, 1)]))
            ).results
            assert refused.error_code == ErrorCode.INVALID_REQUEST
            credential = ScramCredential(_SHA256, b"s", number, bytes(32), bytes(32))
            changes = [UserChange("a", _SHA256, credential)]
            assert (await node.call(AlterUsers(changes))).error_codes == [93]
            answer = await node.call(WatchSecurity(b"\x00" * 70_000, number, -1))
            assert answer.restart
        for value in (float("nan"), float("inf"), -1.0, 1e300):
            change = QuotaChange([EntityData("ip", "::1")], [ValueData("k", value)], [])
            assert (await node.call(AlterQuotas([change]))).error_codes == [42]
        with pytest.raises(OpFailedError, match="42"):
            await node.call(CreateAcls([_rule(node.org, 0)] * (_PER_OP + 1)))
