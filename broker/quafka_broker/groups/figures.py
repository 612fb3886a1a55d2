"""Counts the work of the groups of each kind since the start. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from quafka_broker.groups.group import GroupType
from quafka_broker.groups.table import Event, GroupEntry


class GroupFigures:
    """Counts by kind.

    Attributes:
        heartbeats: heartbeats of existing groups that were served or refused.
        epochs: generations of classic groups; epochs of the others, several in one step counting
            once.
    """

    def __init__(self) -> None:
        self.heartbeats: Counter[GroupType] = Counter()
        self.epochs: Counter[GroupType] = Counter()

    def stored(self, entry: GroupEntry, event: Event) -> None:
        """Count an event of a group that is on its way to the log."""
        epoch = _epoch_of(event)
        if epoch is None:
            return
        if entry.epoch < 0:
            entry.epoch = _epoch_of(entry.stored or {}) or 0
        if epoch > entry.epoch:
            self.epochs[entry.group.kind] += 1
        entry.epoch = epoch


def _epoch_of(event: Mapping[str, Any]) -> int | None:
    """The generation or epoch in an event with a group's own state."""
    own = event.get("own") or event
    found: int | None = own.get("generation", own.get("epoch"))
    return found
