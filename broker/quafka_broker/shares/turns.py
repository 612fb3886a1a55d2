"""The order in which waiting members look at a changed share partition: one after the other.

The members of a group wait for the same records, and the first one may take all of them. So a
change wakes one member of each group. After its look, if there are still records to take, it passes
its turn to the next member that has not looked since the change. A member also passes its turn on
whenever its wait ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from quafka_broker.partitions.parked_fetches import ParkedFetches, WaitingFetch
from quafka_broker.partitions.partition import PartitionId
from quafka_broker.shares.table import SharePartition


class WaitingMember(WaitingFetch):
    """The wait of one member; a context manager, as `WaitingFetch`."""

    __slots__ = ("_has_more", "_shares", "_turns")

    def __init__(
        self,
        fetches: ParkedFetches,
        shares: Mapping[PartitionId, SharePartition],
        deadline: float,
        has_more: Callable[[SharePartition], bool],
    ) -> None:
        """`has_more`: whether a member that looks at a share partition may find records."""
        super().__init__(fetches, shares.keys(), deadline)
        self._shares = shares
        self._has_more = has_more
        self._turns: list[SharePartition] = []

    def __enter__(self) -> WaitingMember:
        for share in self._shares.values():
            share.waiting[self] = None
        super().__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        super().__exit__(*exc_info)
        for share in self._shares.values():
            share.waiting.pop(self, None)
        self.pass_on()

    def mark_changed(self, partition: PartitionId) -> bool:
        """See ParkedFetch. Only the member of the group that has waited longest is woken."""
        super().mark_changed(partition)
        share = self._shares[partition]
        if share.turn is not None or next(iter(share.waiting)) is not self:
            return False
        self._begin_turn(share)
        return True

    def pass_on(self) -> None:
        """Pass the turn on after this member has looked at the changes."""
        turns, self._turns = self._turns, []
        for share in turns:
            share.turn = None
            if not self._has_more(share):
                continue
            for other in share.waiting:
                if other is not self and other.has_changes:
                    other.take_turn(share)
                    break

    def take_turn(self, share: SharePartition) -> None:
        """Look at a share partition now."""
        self._begin_turn(share)
        self.wake_in_turn()

    def _begin_turn(self, share: SharePartition) -> None:
        share.turn = self
        self._turns.append(share)
