"""The kinds of groups."""

from __future__ import annotations

from typing import Any

from quafka_broker.groups.group import GroupType
from quafka_broker.groups.host import GroupKind
from quafka_broker.groups.served_classic import CLASSIC_GROUPS
from quafka_broker.groups.served_consumer import CONSUMER_GROUPS
from quafka_broker.groups.served_share import SHARE_GROUPS

KINDS: dict[GroupType, GroupKind[Any]] = {
    each.kind: each for each in (CLASSIC_GROUPS, CONSUMER_GROUPS, SHARE_GROUPS)
}
"""The kinds that this broker serves. A log with groups of another kind does not open."""
