"""What an org's record may have: its name, and its limits, whose values are in `OrgRecord.limits`.

The broker holds an org to the first group, each broker for its own topics and groups; gateways hold
it to the second, each for its own clients. A limit that a record does not name is the broker's or
the gateway's setting.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from math import isfinite

from quafka_proto.schema.quafka import OrgLimit

_MAX_LONG = (1 << 63) - 1
_ORG_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)


class LimitName(StrEnum):
    """The names of limits. Those of the second group are also quota keys of Kafka's."""

    PARTITIONS = "max.partitions"
    TOPICS = "max.topics"
    GROUPS = "max.groups"
    PRODUCER_IDS = "max.producer.ids"
    STORED_BYTES = "max.stored.bytes"

    CONNECTIONS = "max.connections"
    PRODUCER_BYTE_RATE = "producer.byte.rate"
    CONSUMER_BYTE_RATE = "consumer.byte.rate"
    REQUEST_PERCENTAGE = "request.percentage"
    CONTROLLER_MUTATION_RATE = "controller.mutation.rate"
    CONNECTION_CREATION_RATE = "connection.creation.rate"


OF_THE_BROKER = frozenset({
    LimitName.PARTITIONS, LimitName.TOPICS, LimitName.GROUPS, LimitName.PRODUCER_IDS,
    LimitName.STORED_BYTES,
})  # fmt: skip
COUNTS = OF_THE_BROKER | {LimitName.CONNECTIONS}
"""Limits that are whole numbers, 0 or more; the others are rates above 0."""
_NAMES = {name.value: name for name in LimitName}


def is_org_name(text: str) -> bool:
    """Whether an org may have this name."""
    return _ORG_NAME.fullmatch(text) is not None


def limit_problem(limits: Iterable[OrgLimit]) -> str:
    """Return what is wrong with the limits of a record; "": nothing."""
    found: set[str] = set()
    for limit in limits:
        name = _NAMES.get(limit.name)
        if name is None:
            return f"no limit of an org has the name {limit.name[:64]!r}"
        if name in found:
            return f"{name} occurs twice"
        found.add(name)
        if not isfinite(limit.value) or not 0 <= limit.value <= _MAX_LONG:
            return f"{name} is not a finite number of 0 or more"
        if name in COUNTS and limit.value != int(limit.value):
            return f"{name} is not a whole number"
        if name not in COUNTS and not limit.value:
            return f"{name} is not above 0"
    return ""


def limit_of(limits: Iterable[OrgLimit], name: LimitName) -> float | None:
    """Return the value of a limit; None: the record does not name it."""
    return next((limit.value for limit in limits if limit.name == name), None)
