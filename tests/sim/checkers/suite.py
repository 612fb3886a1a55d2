"""All families of checkers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tests.sim.checkers import (
    copies,
    durability,
    exactly_once,
    freshness,
    groups,
    liveness,
    offsets,
    order,
    registers,
    rights,
    shares,
    snapshots,
    transactions,
)
from tests.sim.checkers.run import Run
from tests.sim.checkers.violation import Violation
from tests.sim.history import Event

FAMILIES: Mapping[str, Callable[[Run], list[Violation]]] = {
    "offsets": offsets.check,
    "copies": copies.check,
    "order": order.check,
    "durability": durability.check,
    "freshness": freshness.check,
    "transactions": transactions.check,
    "exactly once": exactly_once.check,
    "groups": groups.check,
    "registers": registers.check,
    "shares": shares.check,
    "rights": rights.check,
    "snapshots": snapshots.check,
    "liveness": liveness.check,
}
AFTER_LOSS = ("groups", "rights", "liveness")
"""What holds also where a power cut may lose what was acknowledged."""


def check_all(events: Sequence[Event]) -> list[Violation]:
    """What is wrong with a history, the earliest violation first."""
    run = Run(events)
    families = AFTER_LOSS if run.may_lose else FAMILIES
    found = [violation for family in families for violation in FAMILIES[family](run)]
    return sorted(found, key=lambda violation: max(violation.events, default=0))
