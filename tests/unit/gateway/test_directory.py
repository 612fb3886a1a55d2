"""The gateway's copy of orgs, users, ACLs and quotas, and the wait for one's own change."""

from __future__ import annotations

import asyncio

from quafka_gateway.security.directory import Directory, quota_key
from quafka_mesh_ops.ops.security import (
    AclRecord,
    OrgRecord,
    QuotaRecord,
    SecurityChange,
    UserRecord,
    WatchSecurityResp,
)
from quafka_proto.schema.quotas import EntityData, ValueData

ALICE = UserRecord(1, "alice", [])
RULE = AclRecord(1, 2, "t", 3, "User:alice", "*", 3, 3)


def answer(
    version: int, *changes: SecurityChange, restart: bool = False, more: bool = False,
    incarnation: bytes = b"i",
) -> WatchSecurityResp:  # fmt: skip
    return WatchSecurityResp(incarnation, version, restart, more, list(changes))


def test_records_come_and_go() -> None:
    copy = Directory()
    copy.learn(
        answer(
            4,
            SecurityChange(False, org=OrgRecord(7, "blue", "active", [])),
            SecurityChange(False, user=ALICE),
            SecurityChange(False, acl=RULE),
            restart=True,
        )
    )
    assert copy.complete
    assert copy.org_named("blue") == copy.org(7)
    assert copy.user(1, "alice") == ALICE
    assert copy.user(7, "alice") is None
    assert list(copy.acls(1)) == [RULE]
    copy.learn(answer(6, SecurityChange(True, user=ALICE), SecurityChange(True, acl=RULE)))
    assert not copy.users(1)
    assert not copy.acls(1)


def test_a_quota_without_values_is_gone_whatever_the_order_of_its_parts() -> None:
    copy = Directory()
    entity = [EntityData("user", "a"), EntityData("client-id", None)]
    values = [ValueData("producer_byte_rate", 1.0)]
    copy.learn(answer(1, SecurityChange(False, quota=QuotaRecord(1, entity, values))))
    assert list(copy.quotas(1)) == [quota_key(entity)]
    copy.learn(answer(2, SecurityChange(False, quota=QuotaRecord(1, entity[::-1], []))))
    assert not copy.quotas(1)
    assert not copy.quota_orgs()


def test_while_a_copy_is_read_anew_the_old_one_counts() -> None:
    copy = Directory()
    copy.learn(answer(3, SecurityChange(False, user=ALICE), restart=True))
    told: list[object] = []
    copy.listen(told.append)
    bob = UserRecord(1, "bob", [])
    new = SecurityChange(False, user=bob)
    copy.learn(answer(1, new, restart=True, more=True, incarnation=b"j"))
    assert (copy.incarnation, copy.version, copy.asked) == (b"i", 3, (b"j", 1))
    assert copy.user(1, "alice")
    assert not told
    copy.learn(answer(2, incarnation=b"j"))
    assert (list(copy.users(1)), told, copy.version) == ([bob], [None], 2)


async def test_a_write_waits_for_its_version_or_for_a_later_incarnation() -> None:
    copy = Directory()
    copy.learn(answer(3, restart=True))
    assert await copy.includes(b"i", 3, 1)
    assert not await copy.includes(b"i", 4, 0.01)
    waiting = asyncio.ensure_future(copy.includes(b"i", 5, 5))
    await asyncio.sleep(0)
    copy.learn(answer(4))
    await asyncio.sleep(0)
    assert not waiting.done()
    copy.learn(answer(1, restart=True, incarnation=b"j"))
    assert await waiting
