"""A short `python -m tests.crash.transactions`: transactions under everything that goes wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash import transactions

pytestmark = pytest.mark.long


def test_transactions_are_whole_whatever_happens(tmp_path: Path) -> None:
    """Kills, pauses, cut connections, late and repeated requests; clients of both protocols."""
    figures = transactions.run_quafka(tmp_path, 7, seed=1, between=(0.2, 1.0))
    assert not figures.problems, str(figures)
    assert figures.acked > 100, str(figures)
    assert figures.cuts >= 3, str(figures)
