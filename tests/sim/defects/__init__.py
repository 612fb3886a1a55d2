"""Deliberate defects: the simulation must find each of them."""

from tests.sim.defects import chains, groups, logs, reads, topics, transactions
from tests.sim.defects.defect import Defect

DEFECTS: dict[str, Defect] = {
    **logs.DEFECTS,
    **chains.DEFECTS,
    **transactions.DEFECTS,
    **groups.DEFECTS,
    **topics.DEFECTS,
    **reads.DEFECTS,
}
"""By name."""
