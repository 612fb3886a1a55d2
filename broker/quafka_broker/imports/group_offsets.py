"""Keeps the offsets that groups have committed here for topics served from Kafka's folders.

Such a topic and the imported one differ in generation, so its offsets would be lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

from quafka_broker.groups.table import Committed, offsets_event
from quafka_broker.state import BrokerState
from quafka_broker.topics.adopted import adopted_generation
from quafka_broker.topics.topic import Topic


class KeptOffset(NamedTuple):
    """An offset of a group."""

    org: int
    group: str
    topic: str
    partition: int
    offset: int
    metadata: str
    committed_ms: int


def committed_here(state: BrokerState, topics: Iterable[Topic]) -> list[KeptOffset]:
    """The offsets in these topics, which are not created yet, by group."""
    adopted = {(topic.org, topic.name): adopted_generation(topic.uuid) for topic in topics}
    return [
        KeptOffset(*key, *place, known.offset, known.metadata, known.at_ms)
        for key, offsets in state.groups.offsets.of_every_group()
        for place, known in offsets
        if adopted.get((key[0], place[0])) == known.incarnation
    ]


async def put_back(
    state: BrokerState, offsets: Iterable[KeptOffset], topics: Iterable[Topic]
) -> None:
    """Commit offsets in the imported topics. Durable on return.

    Raises:
        StorageError: some may not be committed.
    """
    generations = {(topic.org, topic.name): topic.generation for topic in topics}
    for key, some in groupby(offsets, key=lambda each: (each.org, each.group)):
        # Leader epochs are left out: they count the leaders of the other cluster.
        committed = {
            (each.topic, each.partition): Committed(
                generations[each.org, each.topic], each.offset, -1, each.metadata, each.committed_ms
            )
            for each in some
            if (each.org, each.topic) in generations
        }
        if committed:
            await state.groups.journal.append(offsets_event(key, committed))
