"""The registry of attacks."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tests.hostile
from tests.hostile.arena import Arena

LOOP_SECONDS = 0.25
"""The longest turn that either event loop may have."""
GROWTH_MIB = 64
"""By how much the memory of either process may be above what it was, after an attack."""

Run = Callable[[Arena], None]


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack and its limits.

    Attributes:
        name: what the attacker does, in a sentence without its end.
        run: does it; raises AssertionError where the product's answer is wrong.
        item: the kind of attack, for the table: a defect's number, or "".
        part_of_tests: whether `make test-all` runs it, within seconds.
        loop_seconds: the longest turn allowed; None: not judged (say why).
        growth_mib: the growth of resident memory allowed, per process.
        broker, gateway: further arguments of the two programs; `{folder}` is the stage's folder.
        listeners: the gateway's, the bystander's first; "": one.
        prepare: makes in that folder what the arguments name, before the programs start.
        why: the reason for limits other than the usual.
        of_clients: whether all attackers are Kafka clients, which can be made to log in.
        behind_login: they do log in (`logins.py`).
    """

    name: str
    run: Run
    item: str
    part_of_tests: bool
    loop_seconds: float | None
    growth_mib: int
    broker: tuple[str, ...]
    gateway: tuple[str, ...]
    listeners: str
    prepare: Callable[[Path], None] | None
    why: str
    of_clients: bool
    behind_login: bool = False


CATALOGUE: dict[str, Attack] = {}


def attack(
    name: str,
    item: str = "",
    *,
    part_of_tests: bool = False,
    loop_seconds: float | None = LOOP_SECONDS,
    growth_mib: int = GROWTH_MIB,
    broker: tuple[str, ...] = (),
    gateway: tuple[str, ...] = (),
    listeners: str = "",
    prepare: Callable[[Path], None] | None = None,
    why: str = "",
    of_clients: bool = True,
) -> Callable[[Run], Run]:
    """Enter a function into the catalogue. The arguments are those of `Attack`."""

    def enter(run: Run) -> Run:
        assert name not in CATALOGUE, f"{name!r} is in the catalogue twice"
        usual = loop_seconds == LOOP_SECONDS and growth_mib == GROWTH_MIB
        assert usual or why, f"{name!r} states other limits without a reason"
        CATALOGUE[name] = Attack(
            name,
            run,
            item,
            part_of_tests,
            loop_seconds,
            growth_mib,
            broker,
            gateway,
            listeners,
            prepare,
            why,
            of_clients,
        )
        return run

    return enter


def load() -> list[Attack]:
    """All attacks, those with the same arguments of the programs side by side."""
    for module in pkgutil.iter_modules(tests.hostile.__path__):
        if module.name.startswith("attacks_"):
            importlib.import_module(f"tests.hostile.{module.name}")
    return sorted(CATALOGUE.values(), key=lambda one: (one.broker, one.gateway, one.listeners))
