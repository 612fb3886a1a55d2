"""What AlterClientQuotas accepts and DescribeClientQuotas matches, by Kafka's rules."""

from __future__ import annotations

from math import inf, nan

import pytest

from quafka_broker.security.checks import quota_refusal
from quafka_gateway.handlers import alter_client_quotas, describe_client_quotas
from quafka_gateway.quotas.alteration import change_problem
from quafka_gateway.quotas.filters import ANY, DEFAULT, EXACT, EntityFilter, FilterError
from quafka_gateway.security.directory import QuotaKey
from quafka_mesh_ops.ops.security import (
    QuotaChange,
    QuotaRecord,
    SecurityChange,
    WatchSecurityResp,
)
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.quotas import (
    AlterClientQuotasEntryData,
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    EntityData,
    OpData,
    ValueData,
)
from tests.unit.broker.tools import ORG
from tests.unit.gateway.test_declared_order import served

USER, CLIENT, ADDRESS = (
    EntityData("user", "alice"), EntityData("client-id", None), EntityData("ip", "192.0.2.1"),
)  # fmt: skip


def problem(entity: list[EntityData], key: str = "producer_byte_rate", value: float = 1) -> str:
    return change_problem(QuotaChange(entity, [ValueData(key, value)], []))


@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        ([USER], "producer_byte_rate", 1024),
        ([CLIENT], "consumer_byte_rate", 1),
        ([CLIENT, USER], "request_percentage", 0.5),
        ([USER], "controller_mutation_rate", 0.01),
        ([USER], "producer_byte_rate", 10.0000001),
        ([ADDRESS], "connection_creation_rate", 10),
        ([EntityData("ip", None)], "connection_creation_rate", 10),
    ],
)
def test_good_changes(entity: list[EntityData], key: str, value: float) -> None:
    assert problem(entity, key, value) == ""
    assert quota_refusal(QuotaChange(entity, [ValueData(key, value)], [])) is None


@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        ([], "producer_byte_rate", 1),
        ([USER, USER], "producer_byte_rate", 1),
        ([EntityData("group", "g")], "producer_byte_rate", 1),
        ([EntityData("user", "")], "producer_byte_rate", 1),
        ([EntityData("user", "x" * 5_000)], "producer_byte_rate", 1),
        ([ADDRESS, USER], "connection_creation_rate", 1),
        ([EntityData("ip", "localhost!")], "connection_creation_rate", 1),
        ([ADDRESS], "producer_byte_rate", 1),
        ([USER], "connection_creation_rate", 1),
        ([USER], "no_such_key", 1),
        ([USER], "producer_byte_rate", 0),
        ([USER], "producer_byte_rate", -5),
        ([USER], "producer_byte_rate", 1.5),
        ([USER], "producer_byte_rate", 1e30),
        ([USER], "request_percentage", nan),
        ([USER], "request_percentage", inf),
        ([ADDRESS], "connection_creation_rate", 3e9),
    ],
)
def test_refused_changes(entity: list[EntityData], key: str, value: float) -> None:
    assert problem(entity, key, value)


def test_removing_needs_a_known_key_too() -> None:
    assert change_problem(QuotaChange([USER], [], ["producer_byte_rate"])) == ""
    assert change_problem(QuotaChange([USER], [], ["no_such_key"]))


def test_a_quota_cannot_be_changed_twice_at_once() -> None:
    key = "producer_byte_rate"
    assert change_problem(QuotaChange([USER], [ValueData(key, 1), ValueData(key, 2)], []))
    assert change_problem(QuotaChange([USER], [ValueData(key, 1)], [key]))


BOTH: QuotaKey = (("client-id", "app"), ("user", "alice"))
ALICE: QuotaKey = (("user", "alice"),)
EVERYBODY: QuotaKey = (("user", None),)
APP: QuotaKey = (("client-id", "app"),)
ALL = (BOTH, ALICE, EVERYBODY, APP)
Parts = list[tuple[str, int, str | None]]


@pytest.mark.parametrize(
    ("parts", "strict", "found"),
    [
        ([], False, ALL),
        ([], True, ()),
        ([("user", EXACT, "alice")], False, (BOTH, ALICE)),
        ([("user", EXACT, "alice")], True, (ALICE,)),
        ([("user", DEFAULT, None)], False, (EVERYBODY,)),
        ([("user", ANY, None)], False, (BOTH, ALICE, EVERYBODY)),
        ([("user", ANY, None)], True, (ALICE, EVERYBODY)),
        ([("user", ANY, None), ("client-id", EXACT, "app")], True, (BOTH,)),
        ([("ip", ANY, None)], False, ()),
    ],
)
def test_filters(parts: Parts, strict: bool, found: tuple[QuotaKey, ...]) -> None:
    wanted = EntityFilter(parts, strict=strict)
    assert tuple(filter(wanted.matches, ALL)) == found


@pytest.mark.parametrize(
    "parts",
    [
        [("", EXACT, "x")],
        [("user", EXACT, None)],
        [("user", DEFAULT, "x")],
        [("user", ANY, "x")],
        [("user", 3, None)],
        [("user", ANY, None), ("user", EXACT, "x")],
        [("ip", ANY, None), ("user", ANY, None)],
    ],
)
def test_filters_without_a_meaning(parts: Parts) -> None:
    with pytest.raises(FilterError):
        EntityFilter(parts, strict=False)


def test_other_types_of_entities_are_an_error_of_their_own() -> None:
    with pytest.raises(FilterError) as raised:
        EntityFilter([("group", ANY, None)], strict=False)
    assert raised.value.code == ErrorCode.UNSUPPORTED_VERSION


async def test_answers_have_kafkas_order() -> None:
    user, client = EntityData("user", "alice"), EntityData("client-id", None)
    keys = ("request_percentage", "consumer_byte_rate", "controller_mutation_rate",
            "producer_byte_rate")  # fmt: skip
    changes = [
        AlterClientQuotasEntryData(entity=entity, ops=[OpData(key=key, value=5) for key in keys])
        for entity in ([user, client], [client, user], [user])
    ]
    async with served() as (_, context):
        request = AlterClientQuotasRequest(entries=changes)
        altered = (await alter_client_quotas.handle(request, context)).entries
        assert [(each.error_code, each.entity) for each in altered] == [
            (0, [client, user]), (0, [client, user]), (0, [user]),
        ]  # fmt: skip
        values = [ValueData(key, 5) for key in keys]
        entity = [EntityData("user", "alice"), EntityData("client-id", None)]
        learned = SecurityChange(False, quota=QuotaRecord(ORG, entity, values))
        context.services.directory.learn(WatchSecurityResp(b"i", 1, True, False, [learned]))
        shown = await describe_client_quotas.handle(DescribeClientQuotasRequest(), context)
        (entry,) = shown.entries or []
        assert entry.entity == [client, user]
        assert [each.key for each in entry.values] == [
            "producer_byte_rate", "consumer_byte_rate", "controller_mutation_rate",
            "request_percentage",
        ]  # fmt: skip
