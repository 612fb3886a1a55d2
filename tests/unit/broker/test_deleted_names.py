"""Names of deleted topics are kept in mind, and no org's crowd out another one's."""

from __future__ import annotations

import pytest

from quafka_broker.topics import deleted_names
from quafka_broker.topics.deleted_names import DeletedNames


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deleted_names, "MOST", 10)


def kept(names: DeletedNames, org: int, count: int) -> list[bool]:
    return [names.discard(org, str(number)) for number in range(count)]


def test_an_org_alone_loses_its_first() -> None:
    names = DeletedNames()
    for number in range(12):
        names.add(1, str(number))
    assert kept(names, 1, 12) == [False] * 2 + [True] * 10
    assert kept(names, 1, 12) == [False] * 12, "they are found once"


def test_an_org_that_deletes_many_loses_its_own() -> None:
    names = DeletedNames()
    for number in range(3):
        names.add(1, str(number))
    for number in range(100):
        names.add(2, str(number))
    assert kept(names, 1, 3) == [True] * 3
    assert kept(names, 2, 100) == [False] * 93 + [True] * 7


def test_a_newcomer_has_room_from_the_one_with_the_most() -> None:
    names = DeletedNames()
    for number in range(10):
        names.add(1, str(number))
    for number in range(2):
        names.add(2, str(number))
    assert kept(names, 2, 2) == [True] * 2
    assert kept(names, 1, 10) == [False] * 2 + [True] * 8


def test_a_name_that_is_deleted_again_is_the_last() -> None:
    names = DeletedNames()
    for number in (0, 1, 0):
        names.add(1, str(number))
    for number in range(2, 11):
        names.add(1, str(number))
    assert kept(names, 1, 3) == [True, False, True]
