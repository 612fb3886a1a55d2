"""Which quota holds: Kafka's eight levels, the org's own, and the bound of windows."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from quafka_gateway.quotas.kinds import CLIENT_ID, IP, USER, QuotaKind
from quafka_gateway.quotas.org import OrgQuotas
from quafka_gateway.quotas.precedence import QuotaTable
from quafka_gateway.quotas.windows import WindowSettings
from quafka_gateway.security.directory import QuotaKey, quota_key
from quafka_mesh_ops.ops.security import QuotaRecord
from quafka_proto.schema.quafka import OrgLimit
from quafka_proto.schema.quotas import EntityData, ValueData

LEVELS: tuple[tuple[str | None, str | None], ...] = (
    ("alice", "app"), ("alice", ""), ("alice", None), ("", "app"), ("", ""), ("", None),
    (None, "app"), (None, ""),
)  # fmt: skip
"""User and client id, most special first; "" is the default, None: no part of the entity."""


def key(user: str | None, client: str | None) -> QuotaKey:
    parts = []
    if user is not None:
        parts.append(EntityData(USER, user or None))
    if client is not None:
        parts.append(EntityData(CLIENT_ID, client or None))
    return quota_key(parts)


def record(entity: QuotaKey, **values: float) -> QuotaRecord:
    parts = [EntityData(kind, name) for kind, name in entity]
    return QuotaRecord(1, parts, [ValueData(name, value) for name, value in values.items()])


def table(levels: dict[tuple[str | None, str | None], float]) -> QuotaTable:
    return QuotaTable(
        {key(*level): record(key(*level), producer_byte_rate=v) for level, v in levels.items()}
    )


@given(st.sets(st.sampled_from(range(8))))
def test_the_most_special_level_decides(present: set[int]) -> None:
    quotas = table({LEVELS[level]: 100.0 + level for level in present})
    for user, client in product(("alice", "bob"), ("app", "other")):
        fits = [
            level
            for level in sorted(present)
            if LEVELS[level][0] in (None, "", user) and LEVELS[level][1] in (None, "", client)
        ]
        found = quotas.of_client(QuotaKind.PRODUCE, user, client)
        if not fits:
            assert found is None
            continue
        assert found is not None
        assert found.value == 100.0 + fits[0]
        level_user, level_client = LEVELS[fits[0]]
        assert found.scope == (
            None if level_user is None else user,
            None if level_client is None else client,
        )
    assert quotas.of_client(QuotaKind.FETCH, "alice", "app") is None


def test_addresses_have_their_own() -> None:
    quotas = QuotaTable({
        ((IP, "2001:DB8::0:1"),): record(((IP, "2001:DB8::0:1"),), connection_creation_rate=5),
        ((IP, None),): record(((IP, None),), connection_creation_rate=7),
    })  # fmt: skip
    assert quotas.of_address("2001:db8::1") == 5
    assert quotas.of_address("192.0.2.1") == 7


def org(most: int = 100, limits: tuple[OrgLimit, ...] = (), **levels: float) -> OrgQuotas:
    found = OrgQuotas(WindowSettings(most=most))
    names = {"default_client": (None, ""), "alice": ("alice", None)}
    found.set(table({names[name]: value for name, value in levels.items()}), limits)
    return found


def test_connections_of_one_client_share_a_window_and_the_org_has_its_own() -> None:
    quotas = org(limits=(OrgLimit("producer.byte.rate", 300.0),), default_client=100)
    one = quotas.client("x", "a", 0.0).produce
    same = quotas.client("y", "a", 0.0).produce
    other = quotas.client("x", "b", 0.0).produce
    assert one is not None
    assert same is not None
    assert other is not None
    assert one.charge(1_000, 0.0) == 0
    assert same.charge(100, 0.0) == 1
    assert other.charge(1_000, 0.0) == 0
    assert other.charge(1_000, 0.0) == 10
    assert quotas.client("z", "c", 0.0).produce.charge(200, 0.0) == 1  # type: ignore[union-attr]
    assert quotas.client("x", "a", 0.0).fetch is None


def test_what_was_used_counts_under_a_changed_quota() -> None:
    quotas = org(alice=100)
    first = quotas.client("alice", "", 0.0).produce
    assert first is not None
    first.charge(1_000, 0.0)
    quotas.set(table({("alice", None): 50}), ())
    second = quotas.client("alice", "", 0.0).produce
    assert second is not None
    assert second.charge(0, 0.0) == 10
    quotas.set(QuotaTable({}), ())
    assert not quotas
    assert quotas.client("alice", "", 0.0).produce is None


def test_names_without_end_share_one_window() -> None:
    quotas = org(most=50, default_client=100)
    for number in range(1_000):
        quota = quotas.client("x", f"client-{number}", 0.0).produce
        assert quota is not None
        quota.charge(500, 0.0)
    assert quotas.windows == 50
    assert quotas.overflows == 950
    late = quotas.client("x", "late", 0.0).produce
    assert late is not None
    assert late.charge(0, 0.0) > 4_000
    known = quotas.client("x", "client-3", 0.0).produce
    assert known is not None
    assert known.charge(0, 0.0) == 0
    after = quotas.client("x", "much later", 12.0).produce  # all others are empty by now
    assert after is not None
    assert after.charge(500, 12.0) == 0
    assert quotas.windows == 1


def test_connections_are_counted_by_address_and_by_org() -> None:
    quotas = OrgQuotas(WindowSettings())
    entity: QuotaKey = ((IP, None),)
    addresses = QuotaTable({entity: record(entity, connection_creation_rate=2)})
    quotas.set(addresses, [OrgLimit("connection.creation.rate", 5.0)])
    assert [quotas.open_connection("192.0.2.1", 0.0).seconds for _ in range(20)] == [0.0] * 20
    refused = quotas.open_connection("192.0.2.1", 0.0)
    assert (refused.seconds, refused.refused) == (0.5, True)
    for number in range(30):
        assert quotas.open_connection(f"192.0.2.{2 + number}", 0.0).seconds == 0
    late = quotas.open_connection("192.0.2.99", 0.0)
    assert (round(late.seconds, 6), late.refused) == (0.2, False)
