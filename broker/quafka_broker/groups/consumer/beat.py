"""A member's heartbeat and its answer: ConsumerGroupHeartbeat (KIP-848) without its encoding."""

from __future__ import annotations

from dataclasses import dataclass

from quafka_broker.groups.consumer.topics import Partitions
from quafka_proto.errors import ErrorCode

JOIN = 0
"""The member epoch of a member that joins."""
LEAVE = -1
"""The member epoch of a member that leaves."""
LEAVE_FOR_NOW = -2
"""The member epoch of a static member that leaves and will come back."""


@dataclass(frozen=True, slots=True)
class MemberHeartbeat:
    """A heartbeat. None and -1: unchanged since the member's last one.

    Attributes:
        rebalance_timeout_ms: how long the member may take to give up partitions.
        topic_regex: the topics of this pattern, in RE2's syntax; "" for none.
        assignor: the server's assignor that the member prefers.
        owned: the partitions that the member reports to have.
        regex_topics: the names of the topics that match `topic_regex` and that the member may see;
            None if the group knows the pattern (`ConsumerGroup.knows`).
    """

    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: tuple[str, ...] | None = None
    topic_regex: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""
    regex_topics: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class BeatAnswer:
    """The answer to a heartbeat. `assignment`: None if the member knows it."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None


class HeartbeatRefusedError(Exception):
    """A heartbeat that the group refuses: a Kafka error with its message."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message

    def answer(self) -> BeatAnswer:
        """The answer with this error."""
        return BeatAnswer(self.error, self.message)
