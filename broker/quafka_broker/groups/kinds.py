"""The kinds of groups, with a constructor of an empty group of each."""

from __future__ import annotations

from collections.abc import Callable

from quafka_broker.groups import classic_requests, served_consumer, served_share
from quafka_broker.groups.group import Group, Kind
from quafka_broker.groups.host import Host
from quafka_broker.groups.table import Key

MAKERS: dict[Kind, Callable[[Host, Key], Group]] = {
    Kind.CLASSIC: classic_requests.new_group,
    Kind.CONSUMER: served_consumer.ServedConsumerGroup,
    Kind.SHARE: served_share.ServedShareGroup,
}
"""The kinds that this broker serves. A log with groups of another kind does not open."""
