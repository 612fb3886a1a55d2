"""What `make test` leaves to `make test-all`; CONTRIBUTING has the rule.

Tests with the mark `long` are left out of `make test`. Tests that repeat one thing with many draws
(examples, mutations, seeds) take fewer of them there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from hypothesis import settings

SHORT = "quafka"
"""The Hypothesis profile of `make test`, and of pytest without options."""
FEWER = 4
"""By which part the short suite has fewer draws."""
_LEAST = 4


def share(count: int) -> int:
    """How many of `count` draws this run takes."""
    short = settings.get_current_profile_name() == SHORT
    return max(count // FEWER, min(count, _LEAST)) if short else count


def examples(count: int, **others: Any) -> settings:
    """Hypothesis' settings for a test with as many examples."""
    return settings(max_examples=share(count), deadline=None, **others)


def more(values: Iterable[Any]) -> list[ParameterSet]:
    """Further parameters of a test, for the long suite alone."""
    return [pytest.param(value, marks=pytest.mark.long) for value in values]
