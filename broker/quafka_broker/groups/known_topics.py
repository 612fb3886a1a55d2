"""The topics that groups may be subscribed to: this broker's, and those known to gateways.

A gateway looks up topics of other brokers on request; its answer is used for a while. A topic whose
broker is unavailable is unchanged, not gone. Pure.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from quafka_broker.groups.consumer.topics import Known, TopicMetadata
from quafka_broker.groups.deadlines import NEVER
from quafka_broker.topics.registry import Registry
from quafka_mesh_ops.ops.consumer_groups import KnownTopic

FRESH_SECONDS = 10.0
"""How long a topic of another broker is used before it is looked up again."""
_MOST = 100_000


class _Elsewhere(NamedTuple):
    """`is_certain`: None means that there is no such topic, not that its broker is unavailable."""

    topic: TopicMetadata | None
    is_certain: bool
    until: float


_NEVER_SEEN = _Elsewhere(None, is_certain=False, until=0.0)


class KnownTopics:
    """The topics of all orgs. For one event loop."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.changes: defaultdict[int, int] = defaultdict(int)
        """How often topics of other brokers have changed, by org."""
        self._own: dict[bytes, TopicMetadata] = {}
        self._elsewhere: OrderedDict[tuple[int, str], _Elsewhere] = OrderedDict()

    def find(self, org: int, names: Iterable[str], *, is_whole: bool = False) -> Known:
        """The metadata of topics. `is_whole`: there are no topics at other brokers."""
        return dict(self.found(org, names, is_whole=is_whole))

    def found(
        self, org: int, names: Iterable[str], *, is_whole: bool = False
    ) -> Iterator[tuple[str, TopicMetadata | None]]:
        """The metadata, topic by topic; an unchanged topic is the same object."""
        for name in names:
            topic = self._registry.by_name(org, name)
            if topic is not None:
                known = self._own.get(topic.uuid)
                if known is None or known.partitions != topic.partitions:
                    known = TopicMetadata(topic.uuid, topic.name, topic.partitions)
                    if len(self._own) >= _MOST:
                        self._own.clear()
                    self._own[topic.uuid] = known
                yield name, known
                continue
            other = self._elsewhere.get((org, name), _NEVER_SEEN)
            if other.is_certain or is_whole:
                yield name, other.topic

    def unsure(self, org: int, names: Iterable[str], now: float) -> tuple[list[str], float]:
        """The topics that a gateway should look up, because another broker may have them.

        The second value is when the first of the other topics must be looked up again.
        """
        found: list[str] = []
        earliest = NEVER
        for name in names:
            if self._registry.by_name(org, name) is None:
                until = self._elsewhere.get((org, name), _NEVER_SEEN).until
                if until <= now:
                    found.append(name)
                elif until < earliest:
                    earliest = until
        return found, earliest

    def learn(
        self, org: int, asked: Iterable[str], known: Iterable[KnownTopic], now: float
    ) -> None:
        """Take over the metadata that a gateway has looked up.

        A requested topic that the gateway does not name belongs to this broker, or to an
        unavailable one: it stays unchanged, and is requested again after a while.
        """
        until = now + FRESH_SECONDS
        for name in asked:
            before = self._elsewhere.get((org, name), _NEVER_SEEN)
            self._put(org, name, before._replace(until=until))
        for each in known:
            before = self._elsewhere.get((org, each.topic), _NEVER_SEEN)
            topic: TopicMetadata | None = None
            if each.partitions:
                topic = TopicMetadata(each.topic_id, each.topic, each.partitions)
            if topic == before.topic and before.is_certain:
                topic = before.topic
            else:
                self.changes[org] += 1
            self._put(org, each.topic, _Elsewhere(topic, is_certain=True, until=until))

    def forget(self, org: int, names: Iterable[str]) -> None:
        """Forget the metadata of topics that are or were this broker's."""
        for name in names:
            self._elsewhere.pop((org, name), None)

    def _put(self, org: int, name: str, topic: _Elsewhere) -> None:
        self._elsewhere[org, name] = topic
        self._elsewhere.move_to_end((org, name))
        if len(self._elsewhere) > _MOST:
            self._elsewhere.popitem(last=False)
