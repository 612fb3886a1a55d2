"""What the gateway has learned of its brokers' topics. Pure.

Kafka's newer requests name a topic by its id alone, which no route table can route: the id's
broker is known from the descriptions that have passed. And a broker that is away still has its
topics: clients that list topics must not take them for deleted.
"""

from __future__ import annotations

from collections.abc import Iterable

from quafka_mesh_ops.ops import TopicDescription


class TopicBook:
    """Topics by broker number."""

    def __init__(self, brokers: int) -> None:
        self._by_name: list[dict[str, TopicDescription]] = [{} for _ in range(brokers)]
        self._by_id: dict[bytes, tuple[int, TopicDescription]] = {}

    def broker_of(self, topic_id: bytes) -> int | None:
        """The broker that has the topic with this id, if it is known."""
        known = self._by_id.get(topic_id)
        return None if known is None else known[0]

    def by_id(self, topic_id: bytes) -> TopicDescription | None:
        """What is known of the topic with this id."""
        known = self._by_id.get(topic_id)
        return None if known is None else known[1]

    def named(self, broker: int, name: str) -> TopicDescription | None:
        """What is known of a broker's topic."""
        return self._by_name[broker].get(name)

    def every(self, broker: int) -> list[TopicDescription]:
        """All that are known of a broker."""
        return list(self._by_name[broker].values())

    def learn(self, broker: int, topic: TopicDescription) -> None:
        """The broker has this topic, in place of any of the same name."""
        self.forget(broker, topic.topic)
        self._by_name[broker][topic.topic] = topic
        self._by_id[topic.topic_id] = broker, topic

    def learn_all(self, broker: int, topics: Iterable[TopicDescription]) -> None:
        """The broker has these topics and no other."""
        for name in list(self._by_name[broker]):
            self.forget(broker, name)
        for topic in topics:
            self.learn(broker, topic)

    def forget(self, broker: int, name: str) -> None:
        """The broker does not have a topic of this name."""
        known = self._by_name[broker].pop(name, None)
        if known is not None:
            self._by_id.pop(known.topic_id, None)

    def forget_id(self, broker: int, topic_id: bytes) -> None:
        """The broker does not have a topic of this id."""
        known = self._by_id.get(topic_id)
        if known is not None and known[0] == broker:
            self.forget(broker, known[1].topic)
