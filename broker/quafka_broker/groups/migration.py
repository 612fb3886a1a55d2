"""Groups that move between the classic and the consumer protocol while they run (KIP-848).

A group with members of both protocols uses the consumer protocol. A JoinGroup of a classic member
is served as the equivalent heartbeat: its metadata has the topics and the owned partitions. It is
answered at once, with the member's epoch as the generation and without a leader: the broker
assigns. A member that must rejoin to advance learns this from its heartbeats.

When the first consumer of the new protocol joins a classic group, the group switches to the
consumer protocol with all of its members and their partitions; when the last one has left, the
members rebalance as a classic group again. `group.consumer.migration.policy`:

| | bidirectional | upgrade | downgrade | disabled |
| --- | --- | --- | --- | --- |
| a consumer joins classic members | upgrade | upgrade | GROUP_ID_NOT_FOUND | GROUP_ID_NOT_FOUND |
| a classic member joins consumers | joins | joins | joins | INCONSISTENT_GROUP_PROTOCOL |
| the last consumer leaves | downgrade | stays | downgrade | stays |
| its session ends | downgrade | stays | downgrade | stays |
| a classic member takes its instance id | downgrade | stays | downgrade | refused |
| a member joins an empty group | takes its protocol | the same | the same | the same |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from quafka_broker.groups.classic.group import ClassicGroup
from quafka_broker.groups.classic.members import ClassicMember, new_member_id
from quafka_broker.groups.classic.states import ClassicState
from quafka_broker.groups.classic.subscription import owned_by
from quafka_broker.groups.consumer import facts
from quafka_broker.groups.consumer.beat import JOIN, MemberHeartbeat
from quafka_broker.groups.consumer.member import ClassicSide, ConsumerGroupMember, MemberProgress
from quafka_broker.groups.consumer.topics import Held, Known
from quafka_broker.groups.host import Host, now
from quafka_broker.groups.served_classic import CLASSIC_GROUPS
from quafka_broker.groups.served_consumer import CONSUMER_GROUPS, ServedConsumerGroup
from quafka_broker.groups.table import Key
from quafka_mesh_ops.ops.groups import (
    JoinGroup,
    JoinGroupResp,
    Leaver,
    SyncGroup,
    SyncGroupResp,
)
from quafka_proto.consumer_protocol import (
    CONSUMER,
    Subscription,
    assigned_partitions,
    assignment_of,
    subscription_of,
    version_of,
)
from quafka_proto.errors import ErrorCode, Malformed

# --- classic members of a group of the consumer protocol --------------------------------------


async def join(host: Host, group: ServedConsumerGroup, key: Key, op: JoinGroup) -> JoinGroupResp:
    """Serve a JoinGroup; answered when its changes are durable."""
    subscription = _subscription(op)
    if subscription is None or not _has_common_protocol(group, op):
        return JoinGroupResp(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, op.member_id)
    member_id = op.member_id
    if not member_id:
        member_id = new_member_id(op.instance_id or op.client_id)
        if op.require_member_id and not op.instance_id:
            return JoinGroupResp(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    elif op.instance_id and group.core.instance_owner(op.instance_id) not in ("", member_id):
        return JoinGroupResp(ErrorCode.FENCED_INSTANCE_ID, member_id)
    known = host.topics.find(key[0], subscription.topics)
    beat = _beat(group, op, member_id, subscription, known)
    protocols = [(each.name, each.metadata) for each in op.protocols]
    answer = group.join_classic(beat, ClassicSide(op.session_timeout_ms / 1000, protocols), known)
    host.changed(key, group)
    if answer.error:
        return JoinGroupResp(answer.error, member_id)
    if not await group.changes.all_stored():
        return JoinGroupResp(ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id)
    return JoinGroupResp(
        0, member_id, answer.member_epoch, CONSUMER, op.protocols[0].name, "", members=[]
    )


def _subscription(op: JoinGroup) -> Subscription | None:
    """The subscription in the metadata of a JoinGroup's first protocol; None: not a consumer's."""
    if op.protocol_type != CONSUMER or not op.protocols:
        return None
    try:
        return subscription_of(op.protocols[0].metadata)
    except Malformed:
        return None


def _has_common_protocol(group: ServedConsumerGroup, op: JoinGroup) -> bool:
    """Whether all other classic members have a protocol of a JoinGroup: a downgrade needs one."""
    common = {each.name for each in op.protocols}
    own = (op.member_id, group.core.instance_owner(op.instance_id))
    for member in group.core.members.values():
        if member.classic is not None and member.id not in own:
            common.intersection_update(name for name, _ in member.classic.protocols)
    return bool(common)


def _beat(
    group: ServedConsumerGroup,
    op: JoinGroup,
    member_id: str,
    subscription: Subscription,
    known: Known,
) -> MemberHeartbeat:
    member = group.core.members.get(member_id)
    epoch, owned = JOIN, {}
    if member is not None:
        epoch = member.epoch
        # After a restart, the group may know topics of other brokers that the coordinator does not.
        topics = {**known, **group.core.subscriptions.topics}
        owned = {
            topic.id: partitions
            for name, partitions in subscription.owned.items()
            if (topic := topics.get(name)) is not None
        }
    return MemberHeartbeat(
        member_id,
        epoch,
        op.instance_id or None,
        subscription.rack or None,
        op.rebalance_timeout_ms if op.rebalance_timeout_ms > 0 else op.session_timeout_ms,
        tuple(subscription.topics),
        "",
        None,
        owned,
        op.client_id,
        op.client_host,
    )


async def sync(group: ServedConsumerGroup, op: SyncGroup) -> SyncGroupResp:
    """The partitions of a member, as an assignment of its protocol."""
    core = group.core
    error = group.check_classic(op.member_id, op.instance_id, op.generation)
    member = core.members.get(op.member_id)
    if error or member is None or member.classic is None:
        return SyncGroupResp(error or ErrorCode.UNKNOWN_MEMBER_ID)
    if core.epoch > member.epoch and member.progress is not MemberProgress.UNREVOKED:
        return SyncGroupResp(ErrorCode.REBALANCE_IN_PROGRESS)
    name, metadata = member.classic.protocols[0]
    assignment = _assignment(group, member, version_of(metadata))
    if not await group.changes.all_stored():
        return SyncGroupResp(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return SyncGroupResp(0, assignment, CONSUMER, name)


def _assignment(group: ServedConsumerGroup, member: ConsumerGroupMember, version: int) -> bytes:
    topics = group.core.subscriptions.topics_by_id
    return assignment_of(
        version,
        {
            topics[topic_id].name: numbers
            for topic_id, numbers in member.assigned.items()
            if topic_id in topics
        },
    )


def leave(group: ServedConsumerGroup, leavers: Iterable[Leaver]) -> list[ErrorCode]:
    """Remove members; the error of each."""
    answers: list[ErrorCode] = []
    for leaver in leavers:
        owner = group.core.instance_owner(leaver.instance_id) if leaver.instance_id else ""
        member_id = leaver.member_id or owner
        if leaver.instance_id and owner and owner != member_id:
            answers.append(ErrorCode.FENCED_INSTANCE_ID)
        elif member_id not in group.core.members or (leaver.instance_id and not owner):
            answers.append(ErrorCode.UNKNOWN_MEMBER_ID)
        else:
            group.core.remove(member_id, now())
            answers.append(ErrorCode.NONE)
    group.changes.store()
    return answers


# --- groups that become one of the other kind -------------------------------------------------


def topics_to_know(host: Host, old: ClassicGroup) -> set[str]:
    """The topics of which members have partitions: an upgrade needs to know them.

    Members would keep partitions of a topic that the group does not know, and others get them too.
    """
    if not host.limits.may_upgrade or old.protocol_type != CONSUMER:
        return set()
    return {topic for topic, _ in owned_by(old.members)}


def upgrade(host: Host, key: Key, old: ClassicGroup) -> ServedConsumerGroup | None:
    """Convert a classic group to the consumer protocol; None if that is impossible.

    The group must know those of `topics_to_know` that exist.
    """
    if not host.limits.may_upgrade or old.protocol_type != CONSUMER:
        return None
    epoch = max(1, old.generation)
    stored: dict[str, bytes] = {}
    members = old.every_member()
    try:
        for member in members:
            stored[member.id] = facts.of_member(_upgraded(host, key, member, epoch))
    except Malformed:
        return None
    old.drain()  # parked requests are sent again to the new group
    made = host.become(key, CONSUMER_GROUPS)
    made.begin({"epoch": epoch, "assignment_epoch": epoch}, stored, now())
    return made


def _upgraded(host: Host, key: Key, member: ClassicMember, epoch: int) -> ConsumerGroupMember:
    """Convert a member with its partitions. Raises Malformed: its metadata is not a consumer's."""
    subscription = subscription_of(next(iter(member.protocols.values())))
    assigned = assigned_partitions(member.assignment)
    known = host.topics.find(key[0], {*subscription.topics, *assigned})
    held: Held = {
        topic.id: dict.fromkeys(numbers, epoch)
        for name, numbers in assigned.items()
        if numbers and (topic := known.get(name)) is not None
    }
    return ConsumerGroupMember(
        member.id,
        member.instance_id,
        subscription.rack,
        member.client_id,
        member.client_host,
        round(member.rebalance * 1000),
        frozenset(subscription.topics),
        epoch=epoch,
        previous_epoch=epoch,
        assigned=held,
        target={topic_id: frozenset(numbers) for topic_id, numbers in held.items()},
        classic=ClassicSide(member.session, list(member.protocols.items())),
    )


def downgrade(host: Host, key: Key, old: ServedConsumerGroup) -> None:
    """Make a classic group of one whose members all use the classic protocol."""
    members = list(old.core.members.values())
    stored = [_downgraded(old, member) for member in members if member.classic is not None]
    made = host.become(key, CLASSIC_GROUPS)
    state = {
        "state": str(ClassicState.STABLE),
        "generation": old.core.epoch,
        "protocol_type": CONSUMER,
        "protocol": _common_protocol(members),
        "leader": members[0].id,
        "members": stored,
    }
    made.restore(state, {}, now())
    made.since_ms = host.now_ms()
    event = {"event": "group", "org": key[0], "group": key[1], "since_ms": made.since_ms, **state}
    host.append(key, made, event, lambda _stored: None)
    made.rebalance(now())
    host.changed(key, made)


def _downgraded(group: ServedConsumerGroup, member: ConsumerGroupMember) -> Mapping[str, object]:
    assert member.classic is not None
    protocols = dict(member.classic.protocols)
    version = version_of(member.classic.protocols[0][1])
    return {
        "id": member.id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "session": member.classic.session,
        "rebalance": member.rebalance_timeout_ms / 1000,
        "protocols": protocols,
        "assignment": _assignment(group, member, version),
    }


def _common_protocol(members: Iterable[ConsumerGroupMember]) -> str:
    """A protocol that all members support, in the order of the first member."""
    every = [[name for name, _ in m.classic.protocols] for m in members if m.classic is not None]
    common = set(every[0]).intersection(*every)
    return next((name for name in every[0] if name in common), every[0][0])
