"""A transactional id with its producer and its transaction. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from quafka_broker.groups.table import Commit
from quafka_broker.partitions.partition import PartitionId
from quafka_broker.transactions.connections import ConnectedRequestKind, Connections
from quafka_broker.transactions.events import (
    Added,
    Ended,
    Event,
    Initialized,
    Moved,
    Spread,
    added,
    offsets_stored,
    spread,
)
from quafka_broker.transactions.states import NEXT, TransactionalIdState

LAST_EPOCH = 0x7FFE
"""The last epoch of a producer. One more fences it; then the producer id is replaced (KIP-360)."""
NO_ID = NO_EPOCH = -1
OF_GROUP = -1
"""Used as a partition's number: the offsets of the group with this name, at another broker."""
_KINDS = tuple(ConnectedRequestKind)


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A transaction that has ended here, but not yet at all other brokers.

    `producer_id`, `epoch`: those of its markers. `left`: the brokers that have not answered.
    """

    producer_id: int
    epoch: int
    commit: bool
    branches: Sequence[str]
    since_ms: int
    left: set[str]


@dataclass(slots=True, eq=False)
class Transaction:
    """The state of a transactional id.

    Attributes:
        last_epoch: the previous epoch, if the same producer has advanced from it: its repeated
            requests get the same answers; -1: none.
        previous_id: the previous producer id, like `last_epoch`.
        start_ms: when the transaction began; -1: none is open.
        ended_start_ms: when the transaction began that ended last in this session; -1: none has,
            or it had no partitions and groups.
        used_ms: the time of the last event.
        groups: the groups with offsets in the transaction, and these offsets.
        by_client: whether the producer itself ended the last transaction, or is ending this one.
        joining: partitions, with their topics, whose `Added` is on its way to the log before their
            first batch.
        in_flight: appends of the transaction on their way to the log.
        initializing: whether the `Initialized` of the next session is on its way: batches of the
            last one may no longer join.
        elsewhere: the partitions at other brokers, by topic name, and the node ids of these
            brokers; also groups, with OF_GROUP.
        number: that of the last transaction with partitions elsewhere; 0: none had any.
        unfinished: the last transaction, until all other brokers have ended it: the next one must
            not begin.
        connections: by kind, see `connections.py`.
    """

    org: int
    name: str
    producer_id: int = NO_ID
    epoch: int = NO_EPOCH
    timeout_ms: int = 0
    last_epoch: int = NO_EPOCH
    previous_id: int = NO_ID
    state: TransactionalIdState = TransactionalIdState.EMPTY
    start_ms: int = -1
    ended_start_ms: int = -1
    used_ms: int = 0
    partitions: dict[PartitionId, str] = field(default_factory=dict[PartitionId, str])
    groups: dict[str, Commit] = field(default_factory=dict[str, Commit])
    by_client: bool = True
    joining: dict[PartitionId, str] = field(default_factory=dict[PartitionId, str])
    in_flight: int = 0
    initializing: bool = False
    elsewhere: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    number: int = 0
    unfinished: Unfinished | None = None
    connections: tuple[Connections, ...] = field(
        default_factory=lambda: tuple([Connections() for _ in _KINDS])
    )

    @property
    def key(self) -> tuple[int, str]:
        """The org and the transactional id."""
        return self.org, self.name

    @property
    def is_ending(self) -> bool:
        """Whether the end is on its way to the log: nothing more may join the transaction."""
        return self.state in (
            TransactionalIdState.PREPARE_COMMIT,
            TransactionalIdState.PREPARE_ABORT,
        )

    @property
    def size(self) -> int:
        """The number of partitions and groups in the transaction."""
        return len(self.partitions) + len(self.joining) + len(self.groups) + len(self.elsewhere)

    @property
    def offsets(self) -> int:
        """The number of offsets in the transaction."""
        return sum(len(commit.offsets) for commit in self.groups.values())

    @property
    def deadline_ms(self) -> int:
        """When the open transaction is aborted."""
        return self.start_ms + self.timeout_ms

    @property
    def shown_state(self) -> TransactionalIdState:
        """The state by Kafka's names, in which unfinished transactions are prepared."""
        if self.unfinished is None:
            return self.state
        return (
            TransactionalIdState.PREPARE_COMMIT
            if self.unfinished.commit
            else TransactionalIdState.PREPARE_ABORT
        )

    @property
    def shown_start_ms(self) -> int:
        """When the transaction began or, if it is unfinished, ended here; -1: none."""
        return self.start_ms if self.unfinished is None else self.unfinished.since_ms

    def next_number(self, now_ms: int) -> int:
        """The number of the transaction if it has or gets partitions elsewhere.

        It is unique even after a restore of this broker, since it includes the time.
        """
        if self.elsewhere:
            return self.number
        return 1 + max(now_ms, self.used_ms, self.number)

    def move_to(self, state: TransactionalIdState) -> None:
        """Move to a state that may follow the present one."""
        assert state is self.state or state in NEXT[self.state], (self.state, state)
        self.state = state

    # --- events -----------------------------------------------------------------------------

    def initialize(self, event: Initialized) -> None:
        """Begin a producer's session."""
        self.producer_id, self.epoch = event.producer_id, event.epoch
        self.timeout_ms = event.timeout_ms
        self.last_epoch, self.previous_id = event.last_epoch, event.previous_id
        self.used_ms = event.at_ms
        self._clear(TransactionalIdState.EMPTY)
        self.ended_start_ms = -1

    def add(self, event: Added) -> None:
        """Add partitions and groups to the transaction."""
        self._begin(event.at_ms)
        for hash_, partition, generation, name in event.partitions:
            self.partitions[PartitionId(self.org, hash_, partition, generation)] = name
        for group in event.groups:
            self.groups.setdefault(group, Commit())

    def _begin(self, at_ms: int) -> None:
        """Open the transaction. It may be ending: then this event was on its way before."""
        self.used_ms = at_ms
        if self.start_ms < 0:
            self.start_ms = at_ms
            if not self.is_ending:
                self.state = TransactionalIdState.ONGOING

    def spread(self, event: Spread) -> None:
        """Add partitions of another broker to the transaction."""
        self._begin(event.at_ms)
        self.number = event.number
        self.elsewhere.update(((topic, number), event.broker) for topic, number in event.partitions)

    def finish(self, number: int) -> None:
        """Finish the transaction with this number, which all brokers have ended."""
        if self.number == number:
            self.unfinished = None

    def move(self, event: Moved) -> None:
        """Take over the producer's new connections."""
        self.connections[event.kind].load(event.connections)

    def end(self, event: Ended) -> None:
        """End the transaction."""
        if self.start_ms >= 0 or self.used_ms != event.at_ms:  # otherwise it is applied again
            self.ended_start_ms = self.start_ms
        self.producer_id, self.epoch = event.next_id, event.next_epoch
        self.last_epoch, self.previous_id = event.last_epoch, event.previous_id
        self.used_ms, self.by_client = event.at_ms, event.by_client
        if not event.branches:
            self.unfinished = None
        elif self.unfinished is None or self.number != event.number:  # otherwise it is restated
            self.unfinished = Unfinished(
                event.producer_id, event.epoch, event.commit, event.branches, event.at_ms,
                set(event.branches),
            )  # fmt: skip
        self.number = event.number or self.number
        self._clear(
            TransactionalIdState.COMPLETE_COMMIT
            if event.commit
            else TransactionalIdState.COMPLETE_ABORT
        )

    def _clear(self, state: TransactionalIdState) -> None:
        self.state = state
        self.start_ms = -1
        self.partitions, self.groups, self.elsewhere = {}, {}, {}

    def moves(self, *, every: bool = False) -> list[Event]:
        """The connections that the log does not have yet, or all of them."""
        kinds = zip(ConnectedRequestKind, self.connections, strict=True)
        return [
            Moved(*self.key, kind, used.dump())
            for kind, used in kinds
            if not used.is_saved or (every and used.dump())
        ]

    def restated(self) -> Sequence[Event]:
        """Events that together rebuild this state; all of them must be read, or none."""
        session = Initialized(
            *self.key, self.producer_id, self.epoch, self.timeout_ms, self.last_epoch,
            self.previous_id, self.used_ms if self.start_ms < 0 else self.start_ms,
        )  # fmt: skip
        moves = self.moves(every=True)
        if self.state in (
            TransactionalIdState.COMPLETE_COMMIT,
            TransactionalIdState.COMPLETE_ABORT,
        ):
            began = [Added(*self.key, (), (), self.ended_start_ms)]
            return [session, *began[self.ended_start_ms < 0 :], self._ended(), *moves]
        events: list[Event] = [self._ended(), session] if self.unfinished else [session]
        events += moves
        if self.start_ms < 0:
            return events
        joined = [(id_.topic_hash, *id_[2:], name) for id_, name in self.partitions.items()]
        events += added(self.key, joined, list(self.groups), self.start_ms)
        events += spread(self.key, self.number, self.elsewhere, self.start_ms)
        for group, offsets in self.groups.items():
            events += offsets_stored(self.key, group, offsets)
        return events

    def _ended(self) -> Ended:
        """The end of the last transaction; after a restore, another session may follow."""
        left = self.unfinished
        markers = (left or self).producer_id, (left or self).epoch
        commit = (
            left.commit if left is not None else self.state is TransactionalIdState.COMPLETE_COMMIT
        )
        return Ended(
            *self.key, *markers, commit, self.producer_id, self.epoch, self.last_epoch,
            self.previous_id, (), 0, self.by_client, left.since_ms if left else self.used_ms,
            self.number, left.branches if left is not None else (),
        )  # fmt: skip
