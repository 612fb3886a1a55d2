"""What a command changes, or would change: each value before and after."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from quafka.commands.output import plain, table
from quafka_mesh_ops.units import with_unit


@dataclass(frozen=True, slots=True)
class ValueChange:
    """A changed value. None: there is none, or it must not be shown."""

    name: str
    before: str | None
    after: str | None


def status(options: argparse.Namespace) -> str:
    """The verb of a command that may have `--dry-run`."""
    return "would change" if options.dry_run else "changed"


def print_changes(
    what: str, heading: str, changes: Sequence[ValueChange], options: argparse.Namespace
) -> None:
    """Print for people what has changed, or would change."""
    print(f"{status(options)} {plain(what)}")
    rows = [
        (each.name, _shown(each.name, each.before), _shown(each.name, each.after))
        for each in changes
    ]
    print(table((heading, "BEFORE", "AFTER"), rows))


def _shown(name: str, value: str | None) -> str | None:
    return None if value is None else with_unit(name, value)
