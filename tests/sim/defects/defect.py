"""A deliberate defect: what it is called, how it is planted, and which runs can show it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from tests.sim.world import World

KILLS = ("kill", "power")
RESTARTS = (*KILLS, "stop")
"""Faults after which a process begins anew."""


class Where(Enum):
    """The runs that execute the code in question."""

    FOLDER = "folder"
    STORE = "store"
    ANYWHERE = "anywhere"

    def includes(self, in_store: bool) -> bool:
        """Whether these are runs of this kind."""
        return self is Where.ANYWHERE or (self is Where.STORE) == in_store


@dataclass(frozen=True)
class Defect:
    """A bug that somebody might write.

    Attributes:
        plant: puts it into the running process, for good.
        where: the storage of the runs that can show it.
        programs: kinds of clients; a run without any of them cannot show it.
        faults: kinds of faults of brokers, the store or the network; likewise.
        compacts: only runs with a compacted topic can show it.
    """

    plant: Callable[[], None]
    where: Where = Where.ANYWHERE
    programs: Sequence[str] = ()
    faults: Sequence[str] = ()
    compacts: bool = False

    def may_show_in(self, world: World) -> bool:
        """Whether a run executes the code in question; others are passed over."""
        concerned = {*world.brokers, ""}
        kinds = {fault.kind for fault in world.schedule if fault.target in concerned}
        programs = {name.rpartition("-")[0] for name in world.workload.programs}
        return (
            self.where.includes(world.recipe.in_store)
            and (not self.programs or not programs.isdisjoint(self.programs))
            and (not self.faults or not kinds.isdisjoint(self.faults))
            and (
                not self.compacts or any(topic.is_compacted for topic in world.workload.plan.topics)
            )
        )


def change(target: object, name: str, value: object) -> None:
    """Replace a function or an attribute that exists."""
    if not hasattr(target, name):
        raise AttributeError(f"{target!r} has no {name}: the defect must follow the product")
    setattr(target, name, value)
