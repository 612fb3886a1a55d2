"""The events of the security journal, and their bytes: records of `__quafka_security`.

A record's value is the version byte 0x01 and a msgpack array of the event's kind and its fields, in
the order below. Readers ignore trailing fields that they do not know; fields are only ever
appended. `apply` in `table.py` defines the events' meaning.

A credential is [mechanism, salt, iterations, stored key, server key]. A rule is [resource type,
resource name, pattern type, principal, host, operation, permission type], with Kafka's numbers. An
entity is a list of [kind, name or nil]; limits and quotas are lists of [name, value].
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from quafka_broker.journals.event_values import EventValues
from quafka_mesh_ops.ops.security import (
    AclRecord,
    OrgRecord,
    QuotaRecord,
    ScramCredential,
    UserRecord,
)
from quafka_proto.schema.quafka import OrgLimit
from quafka_proto.schema.quotas import EntityData, ValueData

Credential = tuple[str, bytes, int, bytes, bytes]
Rule = tuple[int, str, int, str, str, int, int]
Entity = Sequence[tuple[str, str | None]]
Values = Sequence[tuple[str, float]]

RULES_PER_EVENT = 100


class OrgSet(NamedTuple):
    """An org was created or changed."""

    org: int
    name: str
    state: str
    limits: Values


class OrgGone(NamedTuple):
    """An org was deleted, with all of its data at this broker."""

    org: int


class IdTaken(NamedTuple):
    """Ids up to this one have been used by orgs: a new org gets a later one."""

    org: int


class UserSet(NamedTuple):
    """A user's credentials; without any, the user is gone."""

    org: int
    name: str
    credentials: Sequence[Credential]


class RulesAdded(NamedTuple):
    """Rules of an org."""

    org: int
    rules: Sequence[Rule]


class RulesRemoved(NamedTuple):
    """Rules that an org no longer has."""

    org: int
    rules: Sequence[Rule]


class QuotaSet(NamedTuple):
    """All quotas of an entity, possibly none."""

    org: int
    entity: Entity
    values: Values


class SecretMade(NamedTuple):
    """The secret of the cluster's gateways; the first one remains in force."""

    secret: bytes


Event: TypeAlias = (
    OrgSet | OrgGone | IdTaken | UserSet | RulesAdded | RulesRemoved | QuotaSet | SecretMade
)

_VALUES: EventValues[Event] = EventValues(
    OrgSet, OrgGone, IdTaken, UserSet, RulesAdded, RulesRemoved, QuotaSet, SecretMade,
)  # fmt: skip


def encode(event: Event) -> bytes:
    """The value of an event's record."""
    return _VALUES.encode(event)


def decode(value: bytes) -> Event:
    """Read an event.

    Raises:
        ValueError, TypeError, IndexError: `encode` did not write this value.
    """
    return _VALUES.decode(value)


# --- events and records -----------------------------------------------------------------------


def org_set(record: OrgRecord) -> OrgSet:
    """The event that makes this record."""
    limits = [(limit.name, float(limit.value)) for limit in record.limits]
    return OrgSet(record.org_id, record.name, record.state, limits)


def org_record(event: OrgSet) -> OrgRecord:
    """The record that an event makes."""
    limits = [OrgLimit(name, value) for name, value in event.limits]
    return OrgRecord(event.org, event.name, event.state, limits)


def user_set(record: UserRecord) -> UserSet:
    """The event that makes this record."""
    credentials = [
        (each.mechanism, each.salt, each.iterations, each.stored_key, each.server_key)
        for each in record.credentials
    ]
    return UserSet(record.org_id, record.name, credentials)


def user_record(event: UserSet) -> UserRecord:
    """The record that an event makes."""
    return UserRecord(event.org, event.name, [ScramCredential(*each) for each in event.credentials])


def rule_of(record: AclRecord) -> Rule:
    """A rule without its org."""
    return (
        record.resource_type, record.resource_name, record.pattern_type, record.principal,
        record.host, record.operation, record.permission_type,
    )  # fmt: skip


def acl_record(org: int, rule: Rule) -> AclRecord:
    """The record of an org's rule."""
    return AclRecord(org, *rule)


def rules_added(org: int, records: Iterable[AclRecord]) -> list[Event]:
    """Events of bounded size that add rules."""
    return [RulesAdded(org, some) for some in _some(records)]


def rules_removed(org: int, records: Iterable[AclRecord]) -> list[Event]:
    """Events of bounded size that remove rules."""
    return [RulesRemoved(org, some) for some in _some(records)]


def _some(records: Iterable[AclRecord]) -> list[list[Rule]]:
    rules = list(map(rule_of, records))
    return [rules[at : at + RULES_PER_EVENT] for at in range(0, len(rules), RULES_PER_EVENT)]


def quota_set(record: QuotaRecord) -> QuotaSet:
    """The event that makes this record."""
    entity = [(part.entity_type, part.entity_name) for part in record.entity]
    return QuotaSet(record.org_id, entity, [(v.key, float(v.value)) for v in record.values])


def quota_record(event: QuotaSet) -> QuotaRecord:
    """The record that an event makes."""
    entity = [EntityData(kind, name) for kind, name in event.entity]
    return QuotaRecord(event.org, entity, [ValueData(key, value) for key, value in event.values])
