"""The partitions that an op names, as its spans name them: with the names and ids of topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from quafka_broker.state import BrokerState
from quafka_telemetry.destinations import Destination, NamedPartition, topic_id_of


def destinations(
    state: BrokerState, org: int, partitions: Iterable[NamedPartition]
) -> Iterator[Destination]:
    """The partitions with the names and ids of their topics, as far as they exist."""
    for part in partitions:
        named = topic_id_of(part)
        topic = state.registry.find(org, part.topic, named)
        name, uuid = (part.topic, named) if topic is None else (topic.name, topic.uuid)
        yield name, uuid, part.partition
