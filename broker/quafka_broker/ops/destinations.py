"""The partitions that an op names, as its spans name them: with the names and ids of topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from quafka_broker.state import BrokerState
from quafka_telemetry.destinations import Destination


class NamedPartition(Protocol):
    """A partition of an op, named by the topic's name or, if that is empty, by its id."""

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...


def destinations(
    state: BrokerState, org: int, partitions: Iterable[NamedPartition]
) -> Iterator[Destination]:
    """The partitions with the names and ids of their topics, as far as they exist."""
    for part in partitions:
        named: bytes = getattr(part, "topic_id", b"")
        topic = state.registry.find(org, part.topic, named)
        name, uuid = (part.topic, named) if topic is None else (topic.name, topic.uuid)
        yield name, uuid, part.partition
