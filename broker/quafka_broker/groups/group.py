"""What every group has, whatever its protocol: the interface behind which the protocols are.

The coordinator, the table, the journal, lag, offsets and whatever shows groups know only this.
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


class Kind(StrEnum):
    """The protocols of groups, by Kafka's names of their types."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


EMPTY, STABLE, DEAD = "Empty", "Stable", "Dead"
"""States that groups of several kinds have, by Kafka's names."""

Place = tuple[str, int]
"""Topic and partition."""
AnyCommit = CommitOffsets | CommitTxnOffsets
"""A commit, and whose it is."""


class GroupMember(Protocol):
    """A member, as consoles show it."""

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
        """The client's name for itself."""
        ...

    @property
    def client_host(self) -> str:
        """The client's address."""
        ...


class Group(Protocol):
    """One group. Times are of the event loop's clock, unless they end in `_ms`.

    Attributes:
        since_ms: wall clock time at which the group became empty or stable.
        born_ms: wall clock time at which it became a group of this kind; the table sets it.
    """

    name: str
    since_ms: int
    born_ms: int

    @property
    def kind(self) -> Kind:
        """The group's protocol."""
        ...

    @property
    def state(self) -> str:
        """The state, by Kafka's name."""
        ...

    @property
    def protocol_type(self) -> str:
        """The type of a classic group, or what lists show in its place; "" if it has none yet."""
        ...

    @property
    def protocol(self) -> str | None:
        """What assigns the partitions: the members' protocol, or the broker's assignor."""
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
        """Whether the members' subscriptions may be about to change all at once."""
        ...

    @property
    def keeps_offsets(self) -> bool:
        """Whether offsets expire only when the group has been empty for their whole retention."""
        ...

    def has_pending_members(self) -> bool:
        """Whether a member id was given out that may yet be used."""
        ...

    def every_member(self) -> Sequence[GroupMember]:
        """The members."""
        ...

    def subscribed(self) -> set[str] | None:
        """The topics that members are subscribed to; None where that is unknown."""
        ...

    def owners(self) -> Mapping[Place, str]:
        """The id of the member that reads each partition, as far as that is known."""
        ...

    @property
    def has_no_reader(self) -> bool:
        """Whether this is a group of consumers, and none is there."""
        ...

    # --- time -------------------------------------------------------------------------------

    @property
    def wake_at(self) -> float:
        """The earliest time at which `tick` has something to do."""
        ...

    def tick(self, now: float) -> None:
        """End the sessions and phases whose time has passed."""
        ...

    def drain(self) -> None:
        """Answer all parked requests: the coordinator stops."""
        ...

    def topics_changed(self, names: Collection[str], now: float, /) -> None:
        """Topics of the org were created, changed or deleted."""
        ...

    # --- members ----------------------------------------------------------------------------

    def heartbeat(
        self, generation: int, member_id: str, instance_id: str, now: float, /
    ) -> ErrorCode:
        """Extend a member's session. `generation`: or the member's epoch.

        The error of a member of a kind whose partitions the broker assigns: NONE only if there is
        nothing that it must be told; otherwise it sends a whole heartbeat of its protocol.
        """
        ...

    def may_commit(self, op: AnyCommit, now: float) -> ErrorCode:
        """The error of a commit by a member, or with generation -1 from outside the group."""
        ...

    def may_fetch_offsets(self, member_id: str | None, epoch: int, /) -> ErrorCode:
        """The error of a request for committed offsets; None and -1: not by a member."""
        ...

    def expel(self, now: float) -> None:
        """Have all members leave."""
        ...

    # --- the table --------------------------------------------------------------------------

    def begin_deletion(self) -> ErrorCode:
        """Begin to delete the group: it refuses members from now on."""
        ...

    def undo_deletion(self) -> None:
        """Accept members again: the deletion failed."""
        ...

    def release(self) -> None:
        """Release the org's usage: the group is dropped."""
        ...

    def restore(self, own: Mapping[str, Any], members: Mapping[str, bytes], now: float, /) -> None:
        """Continue from the stored facts; every member has a whole session to send a request.

        The table sets `since_ms`. `members`: of a kind whose members are facts of their own.

        Raises:
            ValueError, KeyError, TypeError: they are not what a group of this kind stored.
        """
        ...


@dataclass(slots=True)
class GroupChange:
    """What one step of a group changes in the log: all of it becomes durable at once.

    Attributes:
        own: the group's own fact, if it changes: what a restart needs but for the members.
        members: the members that change, each as bytes that its kind declares.
        gone: the ids of members that are no longer in the group.
    """

    own: dict[str, Any] | None = None
    members: dict[str, bytes] = field(default_factory=dict[str, bytes])
    gone: list[str] = field(default_factory=list[str])

    def __bool__(self) -> bool:
        return self.own is not None or bool(self.members) or bool(self.gone)


Then = Callable[[bool], None]
"""Called with whether a change is durable, before anybody is answered."""
