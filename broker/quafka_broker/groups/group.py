"""The interface of all groups, which hides their protocols.

The coordinator, the table, the journal, lag, offsets and the status pages use only this interface.
kinds.py makes the groups of each kind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from quafka_mesh_ops.ops.group_offsets import CommitOffsets
from quafka_mesh_ops.ops.transactions import CommitTxnOffsets
from quafka_proto.errors import ErrorCode


class GroupType(StrEnum):
    """The protocols of groups, by Kafka's names for their types."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


EMPTY, STABLE, DEAD = "Empty", "Stable", "Dead"
"""The states that several kinds of groups share, by Kafka's names."""

Place = tuple[str, int]
"""Topic and partition."""
AnyCommit = CommitOffsets | CommitTxnOffsets
"""A commit, and its group."""


class GroupMember(Protocol):
    """A member as consoles show it."""

    @property
    def id(self) -> str:
        """The member id."""
        ...

    @property
    def instance_id(self) -> str:
        """The instance id of a static member, or ""."""
        ...

    @property
    def client_id(self) -> str:
        """The client id."""
        ...

    @property
    def client_host(self) -> str:
        """The client's address."""
        ...


class Waking(Protocol):
    """Has deadlines by the event loop's clock."""

    @property
    def wake_at(self) -> float:
        """The earliest time at which `tick` has something to do."""
        ...


class Group(Waking, Protocol):
    """One group. Times are by the event loop's clock, unless their names end in `_ms`.

    Attributes:
        since_ms: wall clock time at which the group became empty or stable.
        born_ms: wall clock time at which it became a group of this kind; the table sets it.
    """

    name: str
    since_ms: int
    born_ms: int

    @property
    def kind(self) -> GroupType:
        """The group's protocol."""
        ...

    @property
    def state(self) -> str:
        """The state, by Kafka's name."""
        ...

    @property
    def protocol_type(self) -> str:
        """The type of a classic group, or its substitute in lists; "" if it has none yet."""
        ...

    @property
    def protocol(self) -> str | None:
        """The members' protocol, or the broker's assignor, which assigns the partitions."""
        ...

    @property
    def member_count(self) -> int:
        """The number of members."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        ...

    @property
    def is_rebalancing(self) -> bool:
        """Whether the members' subscriptions may be about to change, all at once."""
        ...

    @property
    def keeps_offsets(self) -> bool:
        """Whether offsets expire only after the group has been empty for their whole retention."""
        ...

    def has_pending_members(self) -> bool:
        """Whether a member id was issued that may still be used."""
        ...

    def every_member(self) -> Sequence[GroupMember]:
        """The members."""
        ...

    def subscribed(self) -> set[str] | None:
        """The topics that members are subscribed to; None if unknown."""
        ...

    def owners(self) -> Mapping[Place, str]:
        """The id of the member that reads each partition, as far as known."""
        ...

    @property
    def has_no_reader(self) -> bool:
        """Whether this is a group of consumers that has none."""
        ...

    # --- time -------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """End the sessions and phases whose time has passed."""
        ...

    def drain(self) -> None:
        """Answer all parked requests, since the coordinator stops."""
        ...

    def topics_changed(self, names: Collection[str], now: float, /) -> None:
        """Note that topics of the org were created, changed or deleted."""
        ...

    # --- members ----------------------------------------------------------------------------

    def heartbeat(
        self, generation: int, member_id: str, instance_id: str, now: float, /
    ) -> ErrorCode:
        """Extend a member's session. `generation`: the generation or the member's epoch.

        If the broker assigns the partitions, NONE means that there is no news for the member; after
        another error it sends a full heartbeat of its protocol.
        """
        ...

    def may_commit(self, op: AnyCommit, now: float) -> ErrorCode:
        """The error of a commit by a member, or with generation -1 from outside the group."""
        ...

    def may_fetch_offsets(self, member_id: str | None, epoch: int, /) -> ErrorCode:
        """The error of a request for committed offsets; None and -1: not by a member."""
        ...

    def expel(self, now: float) -> None:
        """Remove all members."""
        ...

    # --- the table --------------------------------------------------------------------------

    def begin_deletion(self) -> ErrorCode:
        """Begin to delete the group: it refuses members from now on."""
        ...

    def undo_deletion(self) -> None:
        """Accept members again: the deletion failed."""
        ...

    def release(self) -> None:
        """Release the org's usage, since the group is dropped."""
        ...

    def restore(self, own: Mapping[str, Any], members: Mapping[str, bytes], now: float, /) -> None:
        """Continue from the stored facts; every member has a whole session to send a request.

        The table sets `since_ms`. `members`: for kinds whose members are separate facts.

        Raises:
            ValueError, KeyError, TypeError: a group of this kind did not store them.
        """
        ...


@dataclass(slots=True)
class GroupChange:
    """The changes of one step of a group; all of them become durable at once.

    Attributes:
        own: the group's own fact, if it changes: the state for a restart except the members.
        members: the members that change, each as bytes in the format of its kind.
        gone: the ids of removed members.
    """

    own: dict[str, Any] | None = None
    members: dict[str, bytes] = field(default_factory=dict[str, bytes])
    gone: list[str] = field(default_factory=list[str])

    def __bool__(self) -> bool:
        return self.own is not None or bool(self.members) or bool(self.gone)


Then = Callable[[bool], None]
"""Called with whether a change is durable, before any answer is sent."""
