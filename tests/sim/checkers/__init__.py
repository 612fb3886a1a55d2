"""Checkers of histories: what clients were answered, and whether it may be so.

They read events as `tests.sim.history` describes them and share no code with the product. Each
module has one family of properties and a function `check`; `check_all` runs all of them. All take
at most n log n steps for n events and records.
"""

from tests.sim.checkers.run import Run
from tests.sim.checkers.suite import FAMILIES, check_all
from tests.sim.checkers.violation import Violation

__all__ = ["FAMILIES", "Run", "Violation", "check_all"]
