"""The part of the catalogue that takes seconds; `make hostile` runs all of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hostile.catalogue import Attack, load
from tests.hostile.logins import behind_login
from tests.hostile.runner import Options, Stages
from tests.support.suites import more

_PLAYS = 3
"""How often an attack may be played where only the loop was slow: other work on the machine makes
a turn longer, but not three times in a row."""
PLAYED = [one for one in load() if one.part_of_tests]
FIRST = ("batches lie about their records", "each length and count of each API is forged")
"""Those that `make test` plays, too."""
BEHIND_LOGIN = (
    "a thousand joins are refused",
    "requests come a byte at a time from a hundred connections",
    "brokers' requests for transactions come in bulk, for ids that nobody has",
)


@pytest.fixture(scope="module")
def stages() -> Iterator[Stages]:
    opened = Stages(Options())
    yield opened
    opened.close()


@pytest.mark.parametrize(
    "attack",
    [
        *(one for one in PLAYED if one.name in FIRST),
        *more(one for one in PLAYED if one.name not in FIRST),
    ],
    ids=lambda one: one.name,
)
def test_the_bystander_notices_nothing(stages: Stages, attack: Attack) -> None:
    _play(stages, attack)


@pytest.mark.long
@pytest.mark.parametrize("name", BEHIND_LOGIN)
def test_nor_does_one_of_another_org_behind_logins(stages: Stages, name: str) -> None:
    """The gateway is also sent the same without a login."""
    (attack,) = (one for one in PLAYED if one.name == name)
    _play(stages, behind_login(attack))


def _play(stages: Stages, attack: Attack) -> None:
    slow: list[str] = []
    for _ in range(_PLAYS):
        row = stages.play(attack)
        assert not row.problems
        if not row.slow_loops:
            return
        slow += row.slow_loops
    pytest.fail(f"in each of {_PLAYS} plays: {slow}")
