"""Checks of a heartbeat, in Kafka's order and with Kafka's messages. Pure.

From GroupCoordinatorService and GroupMetadataManager of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Sequence

from quafka_broker.groups.consumer.beat import (
    JOIN,
    LEAVE_FOR_NOW,
    HeartbeatRefusedError,
    MemberHeartbeat,
)
from quafka_broker.groups.consumer.member import ConsumerGroupMember
from quafka_broker.groups.consumer.topics import within
from quafka_proto.errors import ErrorCode
from quafka_proto.linear_pattern import LinearPattern, PatternError


def _invalid(message: str) -> HeartbeatRefusedError:
    return HeartbeatRefusedError(ErrorCode.INVALID_REQUEST, message)


def check_request(beat: MemberHeartbeat, assignors: Sequence[str], max_topics: int) -> None:
    """Check for errors that do not depend on the group. The limit of topics is Quafka's.

    Raises:
        HeartbeatRefusedError: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR.
    """
    epoch = beat.member_epoch
    if not beat.member_id.strip():
        raise _invalid("MemberId can't be empty.")
    if beat.instance_id is not None and not beat.instance_id.strip():
        raise _invalid("InstanceId can't be empty.")
    if beat.rack_id is not None and not beat.rack_id.strip():
        raise _invalid("RackId can't be empty.")
    if epoch == JOIN:
        _check_join(beat)
    elif epoch == LEAVE_FOR_NOW and beat.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVE_FOR_NOW:
        raise _invalid("MemberEpoch is invalid.")
    if beat.topic_names is not None and len(beat.topic_names) > max_topics:
        raise _invalid(f"SubscribedTopicNames has more than {max_topics} names.")
    if beat.assignor is not None and beat.assignor not in assignors:
        raise HeartbeatRefusedError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {beat.assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )


def _check_join(beat: MemberHeartbeat) -> None:
    if beat.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if beat.owned is None or beat.owned:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if beat.topic_names is None and beat.topic_regex is None:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining."
        )


def check_pattern(pattern: str) -> None:
    """Check that a pattern can be compiled.

    Raises:
        HeartbeatRefusedError: INVALID_REGULAR_EXPRESSION.
    """
    try:
        LinearPattern(pattern)
    except PatternError as error:
        raise HeartbeatRefusedError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}.",
        ) from error


def check_epoch(member: ConsumerGroupMember, beat: MemberHeartbeat) -> None:
    """Check the epoch of a member that is in the group.

    A member that sends its previous epoch, and owns only partitions that it still has, has lost the
    answer with its new epoch. One that sends 0 has dropped its partitions and joins again.

    Raises:
        HeartbeatRefusedError: FENCED_MEMBER_EPOCH.
    """
    received, known = beat.member_epoch, member.epoch
    if received in (known, JOIN):
        return
    if (
        received == member.previous_epoch
        and received < known
        and beat.owned is not None
        and within(beat.owned, member.assigned)
    ):
        return
    raise HeartbeatRefusedError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {'greater' if received > known else 'smaller'} member "
        f"epoch ({received}) than the one known by the group coordinator ({known}). "
        "The member must abandon all its partitions and rejoin.",
    )


def unknown_member(member_id: str, group: str) -> HeartbeatRefusedError:
    """The error of a member that is not in the group."""
    return HeartbeatRefusedError(
        ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group}."
    )


def unknown_instance(instance_id: str) -> HeartbeatRefusedError:
    """The error of a static member that is not in the group."""
    return HeartbeatRefusedError(
        ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown."
    )


def fenced_instance(beat: MemberHeartbeat, owner: str) -> HeartbeatRefusedError:
    """The error of a static member whose instance id another member has."""
    return HeartbeatRefusedError(
        ErrorCode.FENCED_INSTANCE_ID,
        f"Static member {beat.member_id} with instance id {beat.instance_id} was fenced by "
        f"member {owner}.",
    )


def unreleased_instance(beat: MemberHeartbeat, owner: str) -> HeartbeatRefusedError:
    """The error of a static member whose instance id another member still uses."""
    return HeartbeatRefusedError(
        ErrorCode.UNRELEASED_INSTANCE_ID,
        f"Static member {beat.member_id} with instance id {beat.instance_id} cannot join the "
        f"group because the instance id is owned by {owner} member.",
    )


def full_group(most: int) -> HeartbeatRefusedError:
    """The error of a member that joins a full group."""
    return HeartbeatRefusedError(
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        f"The consumer group has reached its maximum capacity of {most} members.",
    )
