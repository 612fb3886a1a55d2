"""The topics of one consumer or share group: what it knows of them, and what it must look up."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable
from typing import NamedTuple

from quafka_broker.groups.consumer.beat import JOIN
from quafka_broker.groups.consumer.group import ConsumerGroup
from quafka_broker.groups.consumer.member import ConsumerGroupMember
from quafka_broker.groups.consumer.topics import Known, TopicMetadata
from quafka_broker.groups.deadlines import NEVER
from quafka_broker.groups.known_topics import KnownTopics
from quafka_broker.groups.resolved_patterns import ResolvedPatterns
from quafka_mesh_ops.ops.consumer_groups import ConsumerHeartbeat, ConsumerHeartbeatResp


class News(NamedTuple):
    """Metadata of topics in a heartbeat that the group does not know yet.

    Attributes:
        unwanted: the number of them without a subscriber in the group.
        changes: the count of changes of the group's topics for which this is valid.
    """

    known: dict[str, TopicMetadata | None]
    unwanted: int
    changes: int


class GroupTopics:
    """The topics of one group. For one event loop."""

    def __init__(
        self, topics: KnownTopics, org: int, core: ConsumerGroup, pattern_refresh: float
    ) -> None:
        """`topics`: those that the coordinator knows. `pattern_refresh`: see `ResolvedPatterns`."""
        self._topics = topics
        self._org = org
        self._core = core
        self._patterns = ResolvedPatterns(pattern_refresh)
        self._knows_topics = False  # since the start of the broker
        self._is_whole = False  # the gateway has no topics of other brokers
        self._changes_seen: int = -1  # of topics of other brokers
        self._sure_until = -NEVER  # until then no topic must be looked up

    def asks(self, op: ConsumerHeartbeat, now: float) -> ConsumerHeartbeatResp | None:
        """The topics that the gateway must look up before the heartbeat is served, or None."""
        if op.member_epoch < JOIN:
            return None
        pattern = self.pattern_of(op)
        is_due = self._patterns.is_due(pattern, now, is_whole=op.is_whole)
        asks_pattern = op.matched is None and is_due
        names: list[str] = []
        if not op.is_whole:
            names = self._unsure(now, op.topics or (), op.matched or ())
            if op.known is not None:
                self._topics.learn(self._org, names, op.known, now)
                names = []
        if not names and not asks_pattern:
            return None
        return ConsumerHeartbeatResp(asks=names, asks_pattern=pattern if asks_pattern else "")

    def _unsure(self, now: float, *more: Iterable[str]) -> list[str]:
        """The subscribed and other topics that a gateway should look up."""
        topics, org = self._topics, self._org
        found: dict[str, None] = {}
        if self._sure_until <= now:
            unsure, until = topics.unsure(org, self._core.subscriptions.wanted(), now)
            found.update(dict.fromkeys(unsure))
            if not unsure:
                self._sure_until = until
        for names in more:
            found.update(dict.fromkeys(topics.unsure(org, names, now)[0]))
        return sorted(found)

    def pattern_of(self, op: ConsumerHeartbeat) -> str:
        member = self._core.members.get(op.member_id)
        if op.pattern is not None:
            return op.pattern
        return member.regex if member is not None else ""

    def news(self, op: ConsumerHeartbeat) -> Generator[None, None, News]:
        """Collect the news for `serve`; one step for each topic."""
        topics, org = self._topics, self._org
        subscriptions = self._core.subscriptions
        changes, unwanted = subscriptions.changes, 0
        known: dict[str, TopicMetadata | None] = {}
        for names in filter(None, (op.topics, op.matched)):
            for name, topic in topics.found(org, names, is_whole=op.is_whole):
                unwanted += not subscriptions.wants(name)
                if subscriptions.topics.get(name) is not topic:
                    known[name] = topic
                    _ = topic and topic.row  # the log needs it later
                yield
        return News(known, unwanted, changes)

    def known(self, op: ConsumerHeartbeat, news: News) -> Known:
        """Metadata of the topics in a heartbeat, or of all topics if any may have changed."""
        topics, org = self._topics, self._org
        self._is_whole = op.is_whole
        changes: int = topics.changes[org]
        known = news.known
        if not self._knows_topics or (not op.is_whole and changes != self._changes_seen):
            wanted = self._core.subscriptions.wanted()
            known |= topics.find(org, sorted(wanted), is_whole=op.is_whole)
        self._knows_topics, self._changes_seen = True, changes
        return known

    def resolved(self, op: ConsumerHeartbeat, now: float) -> None:
        """Take over the topics that match a pattern, if the heartbeat has them."""
        core, pattern = self._core, self.pattern_of(op)
        if pattern and op.matched is not None:
            self._patterns.resolved(pattern, now)
            self._patterns.keep({pattern, *core.subscriptions.regexes})
            if op.pattern is None:
                core.resolve(pattern, frozenset(op.matched))

    def look_up_again(self) -> None:
        """Have the next heartbeat look up topics, since the subscriptions may have changed."""
        self._sure_until = -NEVER

    def may_have_news(self, member: ConsumerGroupMember, now: float) -> bool:
        """Whether the member must send a full heartbeat, for the sake of topics."""
        return (
            not self._knows_topics
            or self._patterns.is_due(member.regex, now, is_whole=self._is_whole)
            or (not self._is_whole and self._has_news_elsewhere(now))
        )

    def _has_news_elsewhere(self, now: float) -> bool:
        """Whether topics of other brokers have changed, or should be looked up."""
        changes: int = self._topics.changes[self._org]
        return changes != self._changes_seen or bool(self._unsure(now))

    def changed(self, names: Collection[str]) -> bool:
        """Learn the topics of the org that have changed; whether the group wants any of them."""
        self._patterns.topics_changed()
        self._topics.forget(self._org, names)
        self._sure_until = -NEVER
        wanted = list(filter(self._core.subscriptions.wants, names))
        if wanted:
            found = self._topics.find(self._org, wanted)
            self._core.learn({**dict.fromkeys(wanted), **found})
        return bool(wanted)

    def learn_wanted(self) -> None:
        """Learn all topics that members are subscribed to."""
        wanted = sorted(self._core.subscriptions.wanted())
        self._core.learn(self._topics.find(self._org, wanted))
