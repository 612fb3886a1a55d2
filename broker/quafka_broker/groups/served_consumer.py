"""One group of the consumer group protocol (KIP-848), between the coordinator and its pure core.

The core (groups/consumer) changes at once. Its changes go to the log, and answers wait for them:
see `all_stored`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from quafka_broker.groups.consumer.beat import JOIN, Beat, BeatAnswer
from quafka_broker.groups.consumer.group import ConsumerGroup
from quafka_broker.groups.consumer.member import ClassicSide, Member, names_cost
from quafka_broker.groups.consumer.settings import ConsumerGroupSettings
from quafka_broker.groups.consumer.target import Computation
from quafka_broker.groups.consumer.topics import Known, Partitions, TopicMetadata
from quafka_broker.groups.deadlines import NEVER
from quafka_broker.groups.group import DEAD, AnyCommit, GroupChange, Kind, Place
from quafka_broker.groups.group_costs import NAME_COST, GroupCosts
from quafka_broker.groups.heartbeat_ops import beat_of, named
from quafka_broker.groups.host import GroupKind, Host, now
from quafka_broker.groups.org_usage import member_cost
from quafka_broker.groups.resolved_patterns import ResolvedPatterns
from quafka_broker.groups.table import Key
from quafka_loop.slices import at_once, in_slices
from quafka_mesh_ops.ops import consumer_groups as ops
from quafka_mesh_ops.ops.consumer_groups import ConsumerHeartbeat, ConsumerHeartbeatResp
from quafka_mesh_ops.ops.group_offsets import CommitOffsets
from quafka_proto.consumer_protocol import CONSUMER
from quafka_proto.errors import ErrorCode

log = logging.getLogger("quafka.broker.groups")

_STORE_AGAIN_SECONDS = 1.0
"""After this time a change that the log has refused is sent again; a heartbeat does so at once."""


class News(NamedTuple):
    """Metadata of topics in a heartbeat that the group does not know yet.

    Attributes:
        unwanted: the number of them without a subscriber in the group.
        changes: the count of changes of the group's topics for which this is valid.
    """

    known: dict[str, TopicMetadata | None]
    unwanted: int
    changes: int


class ServedConsumerGroup:
    """One group; see `Group`. For one event loop."""

    def __init__(self, host: Host, key: Key) -> None:
        self.name = key[1]
        self.since_ms = self.born_ms = -1
        self._host = host
        self._key = key
        self.core = ConsumerGroup(key[1], self._settings())
        self._costs = GroupCosts(host.usage(key[0]))
        self._patterns = ResolvedPatterns(host.limits.pattern_refresh)
        self._pending: asyncio.Future[bool] | None = None
        self._computing: asyncio.Task[None] | None = None
        self._has_own = False
        self._knows_topics = False  # since the start of the broker
        self._is_whole = False  # the gateway has no topics of other brokers
        self._changes_seen: int = -1  # of topics of other brokers
        self._sure_until = -NEVER  # until then no topic must be looked up
        self._is_dead = False
        self._store_at = -NEVER  # when changes that wait are sent to the log

    def _settings(self) -> ConsumerGroupSettings:
        return self._host.consumer_settings(*self._key)

    # --- what is shown ----------------------------------------------------------------------

    @property
    def kind(self) -> Kind:
        """See Group."""
        return Kind.CONSUMER

    @property
    def state(self) -> str:
        """See Group."""
        return DEAD if self._is_dead else self.core.state

    @property
    def protocol_type(self) -> str:
        """See Group."""
        return CONSUMER

    @property
    def protocol(self) -> str | None:
        """See Group."""
        return self.core.assignor

    @property
    def member_count(self) -> int:
        """See Group."""
        return len(self.core.members)

    @property
    def is_empty(self) -> bool:
        """See Group."""
        return not self.core.members

    @property
    def is_rebalancing(self) -> bool:
        """See Group. Members change their subscriptions one by one."""
        return False

    @property
    def keeps_offsets(self) -> bool:
        """See Group."""
        return True

    @property
    def has_no_reader(self) -> bool:
        """See Group."""
        return not self.core.members

    def has_pending_members(self) -> bool:
        """See Group. Member ids are not issued before a member joins."""
        return False

    def every_member(self) -> Sequence[Member]:
        """See Group."""
        return list(self.core.members.values())

    def subscribed(self) -> set[str]:
        """See Group."""
        return self.core.subscriptions.wanted()

    def owners(self) -> Mapping[Place, str]:
        """See Group."""
        return self.core.owners()

    def described(self) -> Generator[None, None, ops.ConsumerGroup]:
        """The group with its members; one step for each."""
        core = self.core
        topics = core.subscriptions.topics_by_id
        members: list[ops.ConsumerMember] = []
        for member in list(core.members.values()):
            members.append(
                ops.ConsumerMember(
                    member.id, member.instance_id, member.rack, member.epoch,
                    member.client_id, member.client_host, sorted(member.names), member.regex,
                    named(member.has, topics), named(member.target, topics),
                    member.classic is not None,
                )
            )  # fmt: skip
            yield
        return ops.ConsumerGroup(
            self.name, 0, "", self.state, core.epoch, core.assignment_epoch, core.assignor, members
        )

    # --- heartbeats -------------------------------------------------------------------------

    def asks(self, op: ConsumerHeartbeat, now: float) -> ConsumerHeartbeatResp | None:
        """The topics that the gateway must look up before the heartbeat is served, or None."""
        if op.member_epoch < JOIN:
            return None
        pattern = self._pattern_of(op)
        is_due = self._patterns.is_due(pattern, now, is_whole=op.is_whole)
        asks_pattern = op.matched is None and is_due
        names: list[str] = []
        if not op.is_whole:
            names = self._unsure(now, op.topics or (), op.matched or ())
            if op.known is not None:
                self._host.topics.learn(self._key[0], names, op.known, now)
                names = []
        if not names and not asks_pattern:
            return None
        return ConsumerHeartbeatResp(asks=names, asks_pattern=pattern if asks_pattern else "")

    def _unsure(self, now: float, *more: Iterable[str]) -> list[str]:
        """The subscribed and other topics that a gateway should look up."""
        topics, org = self._host.topics, self._key[0]
        found: dict[str, None] = {}
        if self._sure_until <= now:
            unsure, until = topics.unsure(org, self.core.subscriptions.wanted(), now)
            found.update(dict.fromkeys(unsure))
            if not unsure:
                self._sure_until = until
        for names in more:
            found.update(dict.fromkeys(topics.unsure(org, names, now)[0]))
        return sorted(found)

    def _pattern_of(self, op: ConsumerHeartbeat) -> str:
        member = self.core.members.get(op.member_id)
        if op.pattern is not None:
            return op.pattern
        return member.regex if member is not None else ""

    def news(self, op: ConsumerHeartbeat) -> Generator[None, None, News]:
        """Collect the news for `serve`; one step for each topic."""
        topics, org = self._host.topics, self._key[0]
        subscriptions = self.core.subscriptions
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

    def serve(self, op: ConsumerHeartbeat, now: float, news: News | None = None) -> BeatAnswer:
        """Serve a heartbeat; the answer may be sent after `all_stored`."""
        core = self.core
        core.settings = self._settings()
        if news is None or news.changes != core.subscriptions.changes:
            news = at_once(self.news(op))
        if not self._has_room(op, news.unwanted):
            text = "The members of the groups take too much memory."
            return BeatAnswer(ErrorCode.GROUP_MAX_SIZE_REACHED, text)
        pattern = self._pattern_of(op)
        if pattern and op.matched is not None:
            self._patterns.resolved(pattern, now)
            self._patterns.keep({pattern, *core.subscriptions.regexes})
            if op.pattern is None:
                core.resolve(pattern, frozenset(op.matched))
        known = self._known(op, news)
        core.learn(known)
        if known or op.matched is not None:
            core.tick(now)  # a small group computes its target at once
        answer = core.heartbeat(beat_of(op), now, known)
        if known or op.topics is not None or op.matched is not None:
            self._sure_until = -NEVER
        self.store()
        return answer

    def heartbeat(self, epoch: int, member_id: str, instance_id: str, now: float, /) -> ErrorCode:
        """See Group."""
        core = self.core
        member = core.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member.classic is not None:
            error = self.check_classic(member_id, instance_id, epoch)
            if not error and core.beat_classic(member, now):
                error = ErrorCode.REBALANCE_IN_PROGRESS
            return error
        is_settled = member.is_at(core.assignment_epoch) and not member.recheck
        if (
            epoch != member.epoch
            or instance_id != member.instance_id
            or not is_settled
            or not self._knows_topics
            or self._patterns.is_due(member.regex, now, is_whole=self._is_whole)
            or (not self._is_whole and self._has_news_elsewhere(now))
        ):
            return ErrorCode.REBALANCE_IN_PROGRESS
        names = (member.client_id, member.client_host)
        same = Beat(member_id, epoch, instance_id or None, client_id=names[0], client_host=names[1])
        return core.heartbeat(same, now).error

    def join_classic(
        self, beat: Beat, side: ClassicSide, known: Mapping[str, TopicMetadata | None]
    ) -> BeatAnswer:
        """Serve a JoinGroup (migration.py); the answer may be sent after `all_stored`."""
        cost = sum(len(data) for _, data in side.protocols) + len(beat.topic_names or ())
        if not self._costs.may_grow(beat.member_id, cost, self._host.limits):
            return BeatAnswer(ErrorCode.GROUP_MAX_SIZE_REACHED)
        answer = self.core.join_classic(beat, side, now(), known)
        self._sure_until = -NEVER
        self.store()
        return answer

    def check_classic(self, member_id: str, instance_id: str, generation: int) -> ErrorCode:
        """The error of a request of a classic member with these ids and this generation."""
        member = self.core.members.get(member_id)
        if instance_id and self.core.instance_owner(instance_id) not in ("", member_id):
            return ErrorCode.FENCED_INSTANCE_ID
        if member is None or member.classic is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if generation == member.epoch else ErrorCode.ILLEGAL_GENERATION

    def _has_news_elsewhere(self, now: float) -> bool:
        """Whether topics of other brokers have changed, or should be looked up."""
        changes: int = self._host.topics.changes[self._key[0]]
        return changes != self._changes_seen or bool(self._unsure(now))

    def _known(self, op: ConsumerHeartbeat, news: News) -> Known:
        """Metadata of the topics in a heartbeat, or of all topics if any may have changed."""
        topics, org = self._host.topics, self._key[0]
        self._is_whole = op.is_whole
        changes: int = topics.changes[org]
        known = news.known
        if not self._knows_topics or (not op.is_whole and changes != self._changes_seen):
            wanted = self.core.subscriptions.wanted()
            known |= topics.find(org, sorted(wanted), is_whole=op.is_whole)
        self._knows_topics, self._changes_seen = True, changes
        return known

    def _has_room(self, op: ConsumerHeartbeat, unwanted: int) -> bool:
        """Whether the limits of the org and the group allow the additions of a heartbeat."""
        if op.member_epoch < JOIN or (op.topics is None and op.pattern is None):
            return True
        texts = (
            op.member_id, op.instance_id or "", op.rack_id or "", op.client_id, op.client_host,
            op.pattern or "",
        )  # fmt: skip
        cost = member_cost(texts, (), names_cost(op.topics or ())) + NAME_COST * unwanted
        return self._costs.may_grow(op.member_id, cost, self._host.limits)

    # --- the log ----------------------------------------------------------------------------

    def store(self) -> None:
        """Send the changes to the log."""
        if self.core.has_changes:
            self._append(self.core.take_change())

    def store_own(self) -> None:
        """Send the group itself to the log, unless that was done: it has no members yet."""
        self.store()
        if not self._has_own:
            self._append(GroupChange())

    def _append(self, change: GroupChange, *, counts: bool = True) -> None:
        """Send a change to the log, and count its bytes unless the caller does."""
        if change.own is None and not self._has_own:
            at = {"epoch": self.core.epoch, "assignment_epoch": self.core.assignment_epoch}
            change.own = at
        if change.own is not None:
            self._has_own = True
            self.since_ms = self._host.now_ms()
        if counts:
            at_once(self._costs.count(self.core, change.members, change.gone))
        pending: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._pending = pending

        def then(stored: bool) -> None:
            if not stored:
                self.core.not_stored(change)
                self._store_at = now() + _STORE_AGAIN_SECONDS
            if not pending.done():
                pending.set_result(stored)

        self._host.store(self._key, self, change, then)

    async def all_stored(self) -> bool:
        """Wait until all changes so far are in the log; returns whether they are."""
        pending = self._pending
        if pending is None:
            return True
        stored = await asyncio.shield(pending)
        if self._pending is pending:
            self._pending = None
        return stored

    # --- time -------------------------------------------------------------------------------

    @property
    def wake_at(self) -> float:
        """See Group."""
        return self._store_at if self.core.has_changes else self.core.wake_at

    def tick(self, now: float) -> None:
        """See Group."""
        self.core.tick(now)
        self.store()
        if self.must_downgrade:
            self._host.downgrade(self._key)
            return
        computation = self.core.begin_target(now)
        if computation is not None:
            self._computing = asyncio.get_running_loop().create_task(self._compute(computation))

    async def _compute(self, computation: Computation) -> None:
        """Compute a target in slices, and make it the group's."""
        try:
            await in_slices(computation.steps())
        except Exception:
            log.exception("no target could be computed for group %r", self.name)
            self.core.abandon(computation, now())
        else:
            change = await in_slices(self.core.install(computation, now()))
            self._append(change, counts=False)
            await in_slices(self._costs.count(self.core, change.members, change.gone))
        self._computing = None
        self._host.changed(self._key, self)

    @property
    def must_downgrade(self) -> bool:
        """Whether the last consumer of the new protocol has left, and classic members remain."""
        return self.core.has_only_classic_members and self._host.limits.may_downgrade

    def drain(self) -> None:
        """See Group. Nothing is parked."""
        if self._computing is not None:
            self._computing.cancel()

    def topics_changed(self, names: Collection[str], now: float, /) -> None:
        """See Group."""
        self._patterns.topics_changed()
        topics, org = self._host.topics, self._key[0]
        topics.forget(org, names)
        self._sure_until = -NEVER
        wanted = list(filter(self.core.subscriptions.wants, names))
        if wanted:
            self.core.learn({**dict.fromkeys(wanted), **topics.find(org, wanted)})
            self.core.tick(now)
            self.store()

    # --- members ----------------------------------------------------------------------------

    def may_commit(self, op: AnyCommit, now: float) -> ErrorCode:
        """See Group. An earlier epoch may commit for partitions held since then (KIP-1251)."""
        core = self.core
        member = core.members.get(op.member_id)
        is_transactional = not isinstance(op, CommitOffsets)
        is_old = isinstance(op, CommitOffsets) and not op.knows_member_epochs
        if is_old and member is not None and member.classic is None and op.generation >= 0:
            return ErrorCode.UNSUPPORTED_VERSION
        error = core.may_commit(op.generation, op.member_id)
        if error is ErrorCode.STALE_MEMBER_EPOCH and op.generation > 0:
            error = core.may_commit(op.generation, op.member_id, self._partitions_of(op))
        if error is ErrorCode.STALE_MEMBER_EPOCH and is_transactional:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def _partitions_of(self, op: AnyCommit) -> Partitions:
        topics = self.core.subscriptions.topics
        found: dict[bytes, list[int]] = {}
        for each in op.offsets:
            topic = topics.get(each.topic)
            topic_id = each.topic_id if topic is None else topic.id
            found.setdefault(topic_id, []).append(each.partition)
        return found

    def may_fetch_offsets(self, member_id: str | None, epoch: int, /) -> ErrorCode:
        """See Group."""
        return self.core.may_fetch_offsets(epoch, member_id)

    def expel(self, now: float) -> None:
        """See Group."""
        self.core.remove_all()
        self.store()

    # --- the table --------------------------------------------------------------------------

    def begin_deletion(self) -> ErrorCode:
        """See Group."""
        if self._is_dead:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if self.core.members:
            return ErrorCode.NON_EMPTY_GROUP
        self._is_dead = True
        return ErrorCode.NONE

    def undo_deletion(self) -> None:
        """See Group."""
        self._is_dead = False

    def release(self) -> None:
        """See Group."""
        self.drain()
        self._costs.release()

    def begin(self, own: dict[str, Any], members: Mapping[str, bytes], now: float) -> None:
        """Begin with the members of a group of another kind."""
        self.core.restore(own, members, now)
        self._append(GroupChange(dict(own), dict(members)))
        self._learn_wanted()
        self.core.tick(now)
        self.store()

    def _learn_wanted(self) -> None:
        wanted = sorted(self.core.subscriptions.wanted())
        self.core.learn(self._host.topics.find(self._key[0], wanted))

    def restore(self, own: Mapping[str, Any], members: Mapping[str, bytes], now: float, /) -> None:
        """See Group."""
        self.core.restore(own, members, now)
        self._has_own = True
        at_once(self._costs.count(self.core, self.core.members, ()))
        self._learn_wanted()


CONSUMER_GROUPS = GroupKind(Kind.CONSUMER, ServedConsumerGroup)
