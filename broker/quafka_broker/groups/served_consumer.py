"""One group of the consumer group protocol (KIP-848), between the coordinator and its pure core.

The core (groups/consumer) changes at once. Its changes go to the log, and answers wait for them:
see `StoredChanges.all_stored`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from typing import Any

from quafka_broker.groups.consumer.beat import JOIN, BeatAnswer, MemberHeartbeat
from quafka_broker.groups.consumer.group import ConsumerGroup
from quafka_broker.groups.consumer.member import ClassicSide, ConsumerGroupMember, names_cost
from quafka_broker.groups.consumer.settings import ConsumerGroupSettings
from quafka_broker.groups.consumer.target import Computation
from quafka_broker.groups.consumer.topics import Partitions, TopicMetadata
from quafka_broker.groups.group import DEAD, AnyCommit, GroupChange, GroupType, Place
from quafka_broker.groups.group_costs import NAME_COST
from quafka_broker.groups.group_topics import GroupTopics, News
from quafka_broker.groups.heartbeat_ops import beat_of, named
from quafka_broker.groups.host import GroupKind, Host, now
from quafka_broker.groups.org_usage import member_cost
from quafka_broker.groups.stored_changes import StoredChanges
from quafka_broker.groups.table import Key
from quafka_loop.slices import at_once, in_slices
from quafka_mesh_ops.ops.consumer_groups import ConsumerHeartbeat
from quafka_mesh_ops.ops.group_offsets import CommitOffsets
from quafka_proto.consumer_protocol import CONSUMER
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.consumer_groups import (
    CLASSIC_MEMBER,
    CONSUMER_MEMBER,
    ConsumerGroupDescribeMember,
    DescribedConsumerGroup,
)

log = logging.getLogger("quafka.broker.groups")


class ServedConsumerGroup:
    """One group; see `Group`. For one event loop."""

    def __init__(
        self,
        host: Host,
        key: Key,
        core: ConsumerGroup,
        settings: Callable[[int, str], ConsumerGroupSettings],
    ) -> None:
        """`settings`: those in effect for a group of this kind."""
        self.name = key[1]
        self.since_ms = self.born_ms = -1
        self._host = host
        self._key = key
        self.core = core
        self._settings = settings
        self.topics = GroupTopics(host.topics, key[0], core, host.limits.pattern_refresh)
        self.changes = StoredChanges(host, key, self, core)
        self._computing: asyncio.Task[None] | None = None
        self._is_dead = False

    # --- what is shown ----------------------------------------------------------------------

    @property
    def kind(self) -> GroupType:
        return GroupType.CONSUMER

    @property
    def state(self) -> str:
        return DEAD if self._is_dead else self.core.state

    @property
    def protocol_type(self) -> str:
        return CONSUMER

    @property
    def protocol(self) -> str | None:
        return self.core.assignor

    @property
    def member_count(self) -> int:
        return len(self.core.members)

    @property
    def is_empty(self) -> bool:
        return not self.core.members

    @property
    def is_rebalancing(self) -> bool:
        """Members change their subscriptions one by one."""
        return False

    @property
    def keeps_offsets(self) -> bool:
        return True

    @property
    def has_no_reader(self) -> bool:
        return not self.core.members

    def has_pending_members(self) -> bool:
        """Member ids are not issued before a member joins."""
        return False

    def every_member(self) -> Sequence[ConsumerGroupMember]:
        return list(self.core.members.values())

    def subscribed(self) -> set[str]:
        return self.core.subscriptions.wanted()

    def owners(self) -> Mapping[Place, str]:
        return self.core.owners()

    def described(self) -> Generator[None, None, DescribedConsumerGroup]:
        """The group with its members; one step for each."""
        core = self.core
        topics = core.subscriptions.topics_by_id
        members: list[ConsumerGroupDescribeMember] = []
        for member in list(core.members.values()):
            members.append(
                ConsumerGroupDescribeMember(
                    member.id, member.instance_id or None, member.rack or None, member.epoch,
                    member.client_id, member.client_host, sorted(member.names), member.regex,
                    named(member.has, topics), named(member.target, topics),
                    CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
                )
            )  # fmt: skip
            yield
        return DescribedConsumerGroup(
            0, None, self.name, self.state, core.epoch, core.assignment_epoch, core.assignor,
            members,
        )  # fmt: skip

    # --- heartbeats -------------------------------------------------------------------------

    def serve(self, op: ConsumerHeartbeat, now: float, news: News | None = None) -> BeatAnswer:
        """Serve a heartbeat; the answer may be sent after `all_stored`."""
        core = self.core
        core.settings = self._settings(*self._key)
        if news is None or news.changes != core.subscriptions.changes:
            news = at_once(self.topics.news(op))
        if not self._has_room(op, news.unwanted):
            text = "The members of the groups take too much memory."
            return BeatAnswer(ErrorCode.GROUP_MAX_SIZE_REACHED, text)
        self.topics.resolved(op, now)
        known = self.topics.known(op, news)
        core.learn(known)
        if known or op.matched is not None:
            core.tick(now)  # a small group computes its target at once
        answer = core.heartbeat(beat_of(op), now, known)
        if known or op.topics is not None or op.matched is not None:
            self.topics.look_up_again()
        self.changes.store()
        return answer

    def heartbeat(self, epoch: int, member_id: str, instance_id: str, now: float, /) -> ErrorCode:
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
            or self.topics.may_have_news(member, now)
        ):
            return ErrorCode.REBALANCE_IN_PROGRESS
        names = (member.client_id, member.client_host)
        same = MemberHeartbeat(
            member_id, epoch, instance_id or None, client_id=names[0], client_host=names[1]
        )
        return core.heartbeat(same, now).error

    def join_classic(
        self, beat: MemberHeartbeat, side: ClassicSide, known: Mapping[str, TopicMetadata | None]
    ) -> BeatAnswer:
        """Serve a JoinGroup (migration.py); the answer may be sent after `all_stored`."""
        cost = sum(len(data) for _, data in side.protocols) + len(beat.topic_names or ())
        if not self.changes.costs.may_grow(beat.member_id, cost, self._host.limits):
            return BeatAnswer(ErrorCode.GROUP_MAX_SIZE_REACHED)
        answer = self.core.join_classic(beat, side, now(), known)
        self.topics.look_up_again()
        self.changes.store()
        return answer

    def check_classic(self, member_id: str, instance_id: str, generation: int) -> ErrorCode:
        """The error of a request of a classic member with these ids and this generation."""
        member = self.core.members.get(member_id)
        if instance_id and self.core.instance_owner(instance_id) not in ("", member_id):
            return ErrorCode.FENCED_INSTANCE_ID
        if member is None or member.classic is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if generation == member.epoch else ErrorCode.ILLEGAL_GENERATION

    def _has_room(self, op: ConsumerHeartbeat, unwanted: int) -> bool:
        """Whether the limits of the org and the group allow the additions of a heartbeat."""
        if op.member_epoch < JOIN or (op.topics is None and op.pattern is None):
            return True
        texts = (
            op.member_id, op.instance_id or "", op.rack_id or "", op.client_id, op.client_host,
            op.pattern or "",
        )  # fmt: skip
        cost = member_cost(texts, (), names_cost(op.topics or ())) + NAME_COST * unwanted
        return self.changes.costs.may_grow(op.member_id, cost, self._host.limits)

    # --- time -------------------------------------------------------------------------------

    @property
    def wake_at(self) -> float:
        return self.changes.again_at if self.core.has_changes else self.core.wake_at

    def tick(self, now: float) -> None:
        self.core.tick(now)
        self.changes.store()
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
            self.changes.append(change, counts=False)
            await in_slices(self.changes.costs.count(self.core, change.members, change.gone))
        self._computing = None
        self._host.changed(self._key, self)

    @property
    def must_downgrade(self) -> bool:
        """Whether the last consumer of the new protocol has left, and classic members remain."""
        return self.core.has_only_classic_members and self._host.limits.may_downgrade

    def drain(self) -> None:
        """Nothing is parked."""
        if self._computing is not None:
            self._computing.cancel()

    def topics_changed(self, names: Collection[str], now: float, /) -> None:
        if self.topics.changed(names):
            self.core.tick(now)
            self.changes.store()

    # --- members ----------------------------------------------------------------------------

    def may_commit(self, op: AnyCommit, now: float) -> ErrorCode:
        """An earlier epoch may commit for partitions held since then (KIP-1251)."""
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
        return self.core.may_fetch_offsets(epoch, member_id)

    def expel(self, now: float) -> None:
        self.core.remove_all()
        self.changes.store()

    # --- the table --------------------------------------------------------------------------

    def begin_deletion(self) -> ErrorCode:
        if self._is_dead:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if self.core.members:
            return ErrorCode.NON_EMPTY_GROUP
        self._is_dead = True
        return ErrorCode.NONE

    def undo_deletion(self) -> None:
        self._is_dead = False

    def release(self) -> None:
        self.drain()
        self.changes.costs.release()

    def begin(self, own: dict[str, Any], members: Mapping[str, bytes], now: float) -> None:
        """Begin with the members of a group of another kind."""
        self.core.restore(own, members, now)
        self.changes.append(GroupChange(dict(own), dict(members)))
        self.topics.learn_wanted()
        self.core.tick(now)
        self.changes.store()

    def restore(self, own: Mapping[str, Any], members: Mapping[str, bytes], now: float, /) -> None:
        self.core.restore(own, members, now)
        self.changes.has_own = True
        at_once(self.changes.costs.count(self.core, self.core.members, ()))
        self.topics.learn_wanted()


def _new_group(host: Host, key: Key) -> ServedConsumerGroup:
    settings = host.consumer_settings
    return ServedConsumerGroup(host, key, ConsumerGroup(key[1], settings(*key)), settings)


CONSUMER_GROUPS = GroupKind(GroupType.CONSUMER, _new_group)
