"""Orgs, users, rules and quotas at the broker: changed, watched, and back after a restart."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from math import inf, nan
from pathlib import Path

import pytest

from quafka_broker.config.settings import BrokerConfig
from quafka_broker.journals.internal_topics import SECURITY
from quafka_broker.ops import security as ops
from quafka_broker.security.checks import MOST_CHANGES
from quafka_broker.state import BrokerState
from quafka_mesh_ops.errors import OpFailedError
from quafka_mesh_ops.grants import parse_entry
from quafka_mesh_ops.ops.security import (
    AclFilter,
    AclRecord,
    AlterOrg,
    AlterOrgResp,
    AlterQuotas,
    AlterUsers,
    CreateAcls,
    DeleteAcls,
    QuotaChange,
    ScramCredential,
    SecurityChange,
    UserChange,
    WatchSecurity,
    WatchSecurityResp,
)
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.quafka import OrgLimit
from quafka_proto.schema.quotas import EntityData, ValueData
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import context, running_state

NONE = ErrorCode.NONE
SHA256, SHA512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
NODE = "a" * 64


def credential(mechanism: str = SHA256, iterations: int = 4_096) -> ScramCredential:
    size = 32 if mechanism == SHA256 else 64
    return ScramCredential(mechanism, b"salt", iterations, bytes(size), bytes(size))


def user(name: str, mechanism: str = SHA256, iterations: int = 4_096) -> UserChange:
    return UserChange(name, mechanism, credential(mechanism, iterations))


def rule(
    name: str = "t", org: int = 1, principal: str = "User:alice", pattern: int = 3
) -> AclRecord:
    return AclRecord(org, 2, name, pattern, principal, "*", 3, 3)


ANY = AclFilter(1, None, 1, None, None, 1, 1)


def quota(value: float, name: str | None = "alice") -> QuotaChange:
    return QuotaChange([EntityData("user", name)], [ValueData("producer_byte_rate", value)], [])


async def alter_users(state: BrokerState, *changes: UserChange, org: int = 1) -> list[int]:
    return (await ops.alter_users(state, context(org), AlterUsers(list(changes)))).error_codes


async def create_acls(state: BrokerState, *acls: AclRecord, org: int = 1) -> list[int]:
    return (await ops.create_acls(state, context(org), CreateAcls(list(acls)))).error_codes


async def alter_quotas(state: BrokerState, *changes: QuotaChange, org: int = 1) -> list[int]:
    return (await ops.alter_quotas(state, context(org), AlterQuotas(list(changes)))).error_codes


async def alter_org(
    state: BrokerState, org_id: int = 0, name: str = "", became: str = "",
    limits: list[OrgLimit] | None = None, *, create: bool = False, copy: bool = False,
) -> AlterOrgResp:  # fmt: skip
    op = AlterOrg(org_id, name, became, limits, create, copy)
    return await ops.alter_org(state, context(), op)


async def delete_acls(state: BrokerState, *filters: AclFilter) -> list[list[AclRecord]]:
    answer = await ops.delete_acls(state, context(), DeleteAcls(list(filters)))
    return [result.acls for result in answer.results]


async def watch(
    state: BrokerState, last: WatchSecurityResp | None = None, wait_ms: int = 0
) -> WatchSecurityResp:
    op = WatchSecurity(b"", -1, wait_ms)
    if last is not None:
        op = WatchSecurity(last.incarnation, last.version, wait_ms, last.began)
    return await ops.watch(state, context(), op)


def shown(changes: list[SecurityChange]) -> list[str]:
    """Each change in a few letters; removals with a minus."""
    found: list[str] = []
    for change in changes:
        text = ""
        if change.org is not None:
            text = f"org {change.org.org_id}"
        elif change.user is not None:
            text = f"user {change.user.org_id} {change.user.name}"
        elif change.acl is not None:
            text = f"acl {change.acl.org_id} {change.acl.resource_name}"
        elif change.quota is not None:
            text = f"quota {change.quota.org_id} {change.quota.entity[0].entity_name}"
        found.append(("-" if change.removed else "") + text)
    return found


async def fill(state: BrokerState) -> None:
    assert (await alter_org(state, 7, "blue", limits=[OrgLimit("max.topics", 3)], create=True)).org
    assert await alter_users(state, user("alice"), user("bob"), user("alice", SHA512)) == [NONE] * 3
    assert await alter_users(state, UserChange("bob", SHA256)) == [NONE]
    assert await alter_users(state, user("alice"), org=7) == [NONE]
    assert await create_acls(state, rule("t"), rule("u"), rule("v")) == [NONE] * 3
    assert await delete_acls(state, replace(ANY, resource_name="u")) == [[rule("u")]]
    assert await alter_quotas(state, quota(10), quota(20, None)) == [NONE, NONE]


FILLED = ["acl 1 t", "acl 1 v", "org 7", "quota 1 None", "quota 1 alice", "user 1 alice",
          "user 7 alice"]  # fmt: skip


async def test_records_survive_restarts_with_and_without_a_checkpoint() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await fill(state)
        left = disk.crashed()  # without a checkpoint
    for each in (disk, left):
        async with running_state(each) as state:
            answer = await watch(state)
            assert sorted(shown(answer.changes), key=str) == FILLED
            assert answer.restart
            its = state.security.table.of(1).users["alice"]
            assert [each.mechanism for each in its.credentials] == [SHA256, SHA512]
            assert state.security.table.orgs[7].limits == [OrgLimit("max.topics", 3.0)]


async def test_a_watch_answers_at_a_change_and_not_before() -> None:
    async with running_state(MemoryDisk()) as state:
        first = await watch(state)
        parked = asyncio.create_task(watch(state, first, 10_000))
        await asyncio.sleep(0)
        assert not parked.done()
        answer = await ops.alter_users(state, context(), AlterUsers([user("alice")]))
        news = await parked
        assert (shown(news.changes), news.restart, news.more) == (["user 1 alice"], False, False)
        assert (news.version, news.incarnation) == (answer.version, answer.incarnation)
        await alter_users(state, UserChange("alice", SHA256))
        gone = await watch(state, news, 10_000)
        assert shown(gone.changes) == ["-user 1 alice"]
        assert (await watch(state, gone, 1)).changes == []


async def test_a_node_gets_its_orgs_and_begins_anew_when_they_change() -> None:
    async with running_state(MemoryDisk()) as state:
        await fill(state)
        grant = (parse_entry(f"{NODE} orgs=7"),)
        state.security.watchers.grants = lambda _: grant
        seen = await watch(state)
        assert shown(seen.changes) == ["org 7", "user 7 alice"]
        parked = asyncio.create_task(watch(state, seen, 10_000))
        await asyncio.sleep(0)
        await alter_users(state, user("carol"))  # of another org
        await asyncio.sleep(0)
        assert not parked.done()
        grant = (parse_entry(f"{NODE} orgs=1"),)
        state.security.watchers.wake()
        anew = await parked
        assert anew.restart
        assert "user 1 carol" in shown(anew.changes)
        assert "user 7 alice" not in shown(anew.changes)
        grant = (parse_entry(f"{NODE} orgs=1 may=administer"),)
        assert (await watch(state, anew)).changes == []


async def test_pages_make_the_whole_while_records_change() -> None:
    async with running_state(MemoryDisk()) as state:
        for at in range(3):
            names = [f"t{number}" for number in range(at * 900, at * 900 + 900)]
            assert not any(await create_acls(state, *map(rule, names)))
        page = await watch(state)
        copy = set(shown(page.changes))
        assert (page.restart, page.more, len(copy)) == (True, True, 1_000)
        await delete_acls(state, *(replace(ANY, resource_name=f"t{at}") for at in (5, 2_000)))
        while page.more:
            page = await watch(state, page)
            assert not page.restart
            for each in shown(page.changes):
                copy.discard(each[1:]) if each[0] == "-" else copy.add(each)
        assert copy == {f"acl 1 t{at}" for at in range(2_700)} - {"acl 1 t5", "acl 1 t2000"}


async def test_a_last_page_without_anything_for_the_node_ends_its_copy() -> None:
    async with running_state(MemoryDisk()) as state:
        await create_acls(state, *(rule(str(at), org=7) for at in range(1_000)), org=7)
        await create_acls(state, rule("of another org"))
        grant = (parse_entry(f"{NODE} orgs=7"),)
        state.security.watchers.grants = lambda _: grant
        first = await watch(state)
        assert (len(first.changes), first.more) == (1_000, True)
        last = await asyncio.wait_for(watch(state, first, 60_000), 30)
        assert (last.changes, last.more, last.restart) == ([], False, False)


async def test_a_copy_is_read_to_its_end_after_many_removals() -> None:
    """Those that were forgotten before the copy began are not in it."""
    async with running_state(MemoryDisk()) as state:
        await create_acls(state, *(rule(str(at)) for at in range(1_500)))
        state.security.table._removals_kept = 0
        await delete_acls(state, replace(ANY, resource_name="0"))
        page = await watch(state)
        assert (page.restart, page.more) == (True, True)
        last = await watch(state, page)
        assert (last.restart, last.more, len(page.changes) + len(last.changes)) == (
            False, False, 1_499,
        )  # fmt: skip


async def test_a_node_parks_a_bounded_number_of_requests() -> None:
    async with running_state(MemoryDisk()) as state:
        first = await watch(state)
        parked = [asyncio.create_task(watch(state, first, 60_000)) for _ in range(200)]
        await asyncio.sleep(0.01)
        assert sum(each.done() for each in parked) == 200 - state.security.watchers.parked == 72
        await alter_users(state, user("alice"))
        answers = await asyncio.gather(*parked)
        assert sum(bool(answer.changes) for answer in answers) == 128
        assert not state.security.watchers.parked


async def test_a_reader_that_missed_forgotten_removals_begins_anew() -> None:
    async with running_state(MemoryDisk()) as state:
        state.security.table._removals_kept = 2
        await create_acls(state, *(rule(str(at)) for at in range(5)))
        late = await watch(state)
        for at in range(4):
            await delete_acls(state, replace(ANY, resource_name=str(at)))
        answer = await watch(state, late)
        assert (shown(answer.changes), answer.restart) == (["acl 1 4"], True)
        future = replace(answer, version=answer.version + 1)
        assert (await watch(state, future)).restart


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (user("a", iterations=4_095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (user("a", iterations=16_385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (user("a", iterations=16_384), NONE),
        (user(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (user("x" * 1_025), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (UserChange("a", "SCRAM-MD5"), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (UserChange("a", SHA256), ErrorCode.RESOURCE_NOT_FOUND),
        (UserChange("a", SHA256, credential(SHA512)), ErrorCode.INVALID_REQUEST),
        (UserChange("a", SHA256, replace(credential(), salt=b"")), 93),
        (UserChange("a", SHA256, replace(credential(), stored_key=b"k")), 93),
    ],
)
async def test_what_a_user_may_be(change: UserChange, code: int) -> None:
    async with running_state(MemoryDisk()) as state:
        assert await alter_users(state, user("b"), change) == [NONE, code]
        assert "b" in state.security.table.of(1).users


@pytest.mark.parametrize(
    "acl",
    [rule(org=2), rule(""), rule("x" * 1_025), rule(pattern=2), rule(pattern=5),
     rule(principal="alice"), rule(principal=":alice"), replace(rule(), host=""),
     replace(rule(), resource_type=1), replace(rule(), operation=1),
     replace(rule(), operation=16), replace(rule(), permission_type=1)],
)  # fmt: skip
async def test_what_no_rule_may_be(acl: AclRecord) -> None:
    async with running_state(MemoryDisk()) as state:
        assert await create_acls(state, acl, rule("good")) == [ErrorCode.INVALID_REQUEST, NONE]
        assert list(state.security.table.of(1).rules) == [rule("good")]


@pytest.mark.parametrize(
    "change",
    [quota(0), quota(-1), quota(nan), quota(inf), quota(1.5), quota(1e30), quota(1, ""),
     replace(quota(1), entity=[]), replace(quota(1), entity=[EntityData("host", "a")]),
     replace(quota(1), entity=[EntityData("ip", "::1")]),
     replace(quota(1), entity=[EntityData("user", "a")] * 2),
     replace(quota(1), removed=["producer_byte_rate"]), replace(quota(1), removed=["cats"])],
)  # fmt: skip
async def test_what_no_quota_may_be(change: QuotaChange) -> None:
    async with running_state(MemoryDisk()) as state:
        assert await alter_quotas(state, change) == [ErrorCode.INVALID_REQUEST]
        assert not state.security.table.of(1).quotas


async def test_quotas_are_set_key_by_key_and_removed() -> None:
    async with running_state(MemoryDisk()) as state:
        both = [EntityData("user", "a"), EntityData("client-id", None)]
        rate = ValueData("request_percentage", 12.5)
        assert await alter_quotas(state, QuotaChange(both, [rate], [])) == [NONE]
        other = ValueData("consumer_byte_rate", 7)
        assert await alter_quotas(state, QuotaChange(both[::-1], [other], [])) == [NONE]
        (record,) = state.security.table.of(1).quotas.values()
        assert record.values == [rate, ValueData("consumer_byte_rate", 7.0)]
        gone = ["consumer_byte_rate", "request_percentage"]
        assert await alter_quotas(state, QuotaChange(both, [], gone)) == [NONE]
        assert not state.security.table.of(1).quotas


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (ANY, "all"),
        (AclFilter(2, "t-1", 4, None, None, 1, 1), ""),
        (AclFilter(2, "t-", 4, None, None, 1, 1), "t-"),
        (AclFilter(2, "t-1", 2, None, None, 1, 1), "* t- t-1"),
        (AclFilter(2, "t-1", 1, None, None, 1, 1), "t-1"),
        (AclFilter(2, "*", 3, None, None, 1, 1), "*"),
        (AclFilter(3, None, 1, None, None, 1, 1), ""),
        (AclFilter(2, None, 1, "User:bob", None, 1, 1), "u"),
        (AclFilter(2, None, 1, None, "10.0.0.1", 1, 1), ""),
        (AclFilter(2, None, 1, None, None, 4, 1), ""),
        (AclFilter(2, None, 1, None, None, 3, 2), ""),
    ],
)
async def test_what_filters_remove(wanted: AclFilter, found: str) -> None:
    rules = [rule("*"), rule("t-", pattern=4), rule("t-1"), rule("u", principal="User:bob")]
    names = "* t- t-1 u" if found == "all" else found
    async with running_state(MemoryDisk()) as state:
        await create_acls(state, *rules)
        unknown = replace(ANY, pattern_type=9)
        answer = await ops.delete_acls(state, context(), DeleteAcls([unknown, wanted]))
        assert [result.error_code for result in answer.results] == [42, 0]
        gone = answer.results[1].acls
        assert sorted(acl.resource_name for acl in gone) == names.split()
        assert set(state.security.table.of(1).rules) == set(rules) - set(gone)


async def test_each_org_has_bounds() -> None:
    config = BrokerConfig(
        data=Path("unused"), security_max_orgs=1, security_max_users_per_org=2,
        security_max_acls_per_org=2, security_max_quotas_per_org=1,
    )  # fmt: skip
    full = ErrorCode.POLICY_VIOLATION
    async with running_state(MemoryDisk(), config) as state:
        assert await alter_users(state, *map(user, "abca")) == [NONE, NONE, full, NONE]
        assert await alter_users(state, user("a", SHA512), user("c")) == [NONE, full]
        assert await alter_users(state, user("c"), org=2) == [NONE]
        assert await create_acls(state, *map(rule, "abca")) == [NONE, NONE, full, NONE]
        assert await alter_quotas(state, quota(1), quota(1, "b"), quota(2)) == [NONE, full, NONE]
        assert not (await alter_org(state, 2, "red", create=True)).error_code
        assert (await alter_org(state, 3, "blue", create=True)).error_code == full
        with pytest.raises(OpFailedError):
            await create_acls(state, *[rule()] * (MOST_CHANGES + 1))


async def test_orgs_that_settings_may_name_are_not_given_away() -> None:
    async with running_state(MemoryDisk()) as state:
        made = await alter_org(state, 0, "red", create=True)
        assert made.org is not None
        assert made.org.org_id == 1_000


async def test_orgs_have_one_name_and_id_each() -> None:
    async with running_state(MemoryDisk()) as state:
        await state.topics.create(1_004, "t", 1)
        made = await alter_org(state, 0, "red", create=True)
        assert made.org is not None
        assert (made.org.org_id, made.org.state, made.org.limits) == (1_005, "active", [])
        for org_id, name in ((1_005, "blue"), (0, "red"), (9, "red")):
            answer = await alter_org(state, org_id, name, create=True)
            assert answer.error_code == ErrorCode.DUPLICATE_RESOURCE
        for bad in (
            await alter_org(state, 1_005, "a b"), await alter_org(state, 1_005, became="sleepy"),
            await alter_org(state, 1_005, limits=[OrgLimit("max.cats", 1)]),
            await alter_org(state),
            await alter_org(state, 1 << 32, "x", create=True),
            await alter_org(state, 0, "", create=True),
        ):  # fmt: skip
            assert bad.error_code == ErrorCode.INVALID_REQUEST
        assert (await alter_org(state, 6, "blue")).error_code == ErrorCode.RESOURCE_NOT_FOUND
        changed = await alter_org(state, 1_005, became="suspended")
        assert changed.org is not None
        assert (changed.org.name, changed.org.state) == ("red", "suspended")
        copied = await alter_org(state, 8, "green", "active", [], copy=True)
        assert copied.org is not None
        assert copied.org.org_id == 8


async def test_the_journal_is_shortened_and_says_the_same() -> None:
    disk = MemoryDisk()
    async with running_state(disk) as state:
        await fill(state)
        state.security.journal.events_kept = 20
        for number in range(40):
            await alter_quotas(state, quota(1 + number % 2, "z"))
        await state.security.journal.shorten()
        assert state.log.partitions.get(SECURITY).log_start > 20
        await alter_quotas(state, QuotaChange(quota(1, "z").entity, [], ["producer_byte_rate"]))
        left = disk.crashed()
    async with running_state(left) as state:
        assert sorted(shown((await watch(state)).changes)) == FILLED
        assert state.security.table.last_org == 7
