"""Any events: the bytes, the copy in a checkpoint, and what a reader of changes ends with."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from quafka_broker.security import events
from quafka_broker.security.events import (
    Event,
    IdTaken,
    OrgGone,
    OrgSet,
    QuotaSet,
    RulesAdded,
    RulesRemoved,
    SecretMade,
    UserSet,
)
from quafka_broker.security.table import SecurityTable
from quafka_gateway.security.directory import Directory
from quafka_mesh_ops.ops.security import SecurityChange, WatchSecurityResp

ORGS = st.integers(1, 3)
NAMES = st.text(max_size=3)
CREDENTIALS = st.lists(
    st.tuples(NAMES, st.binary(max_size=3), st.integers(0, 9), st.binary(), st.binary()),
    max_size=2,
)
RULES = st.lists(
    st.tuples(st.integers(2, 3), NAMES, st.just(3), NAMES, NAMES, st.integers(2, 3), st.just(2)),
    max_size=4,
)
ENTITIES = st.lists(
    st.tuples(st.sampled_from(["user", "client-id"]), st.none() | NAMES),
    min_size=1, max_size=2, unique_by=lambda part: part[0],
)  # fmt: skip
VALUES = st.lists(st.tuples(NAMES, st.floats(allow_nan=False)), max_size=2)
STATES = st.sampled_from(["active", "deleting"])
EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(OrgSet, ORGS, NAMES, STATES, VALUES),
    st.builds(OrgGone, ORGS),
    st.builds(IdTaken, ORGS),
    st.builds(UserSet, ORGS, NAMES, CREDENTIALS),
    st.builds(RulesAdded, ORGS, RULES),
    st.builds(RulesRemoved, ORGS, RULES),
    st.builds(QuotaSet, ORGS, ENTITIES, VALUES),
    st.builds(SecretMade, st.binary(min_size=1, max_size=32)),
)


def made_of(all_events: Sequence[Event], removals_kept: int = 10_000) -> SecurityTable:
    table = SecurityTable(removals_kept)
    for event in all_events:
        table.apply(event)
    return table


def contents(table: SecurityTable) -> object:
    its = {org: table.of(org) for org in range(1, 4)}
    return table.orgs, its, table.last_org, table.secret


@given(st.lists(EVENTS, max_size=30))
def test_events_are_read_as_they_were_written(made: list[Event]) -> None:
    read = made_of([events.decode(events.encode(event)) for event in made])
    assert contents(read) == contents(made_of(made))


@given(st.lists(EVENTS, max_size=30), st.integers(0, 30))
def test_a_copy_and_the_events_after_it_make_the_table(made: list[Event], at: int) -> None:
    """The copy may include some of these events already."""
    whole = made_of(made)
    for copied in (at, len(made)):
        copy = list(made_of(made[:copied]).restated())
        assert contents(made_of([*copy, *made[at:]])) == contents(whole)
    whole.forget_removals()
    assert len(whole.after(-1, 1_000)[0]) == len(whole)


@given(st.lists(EVENTS, max_size=40), st.data())
def test_a_reader_that_asks_now_and_then_has_what_the_table_has(
    made: list[Event], data: st.DataObject
) -> None:
    table, copy = SecurityTable(data.draw(st.integers(0, 5))), Directory()
    for event in made:
        table.apply(event)
        if data.draw(st.booleans()):
            ask(table, copy, data.draw(st.integers(1, 3)))
    for _ in range(len(made)):
        ask(table, copy, 5)
    assert copy.version == table.version
    assert dict(copy.orgs()) == table.orgs
    for org in range(1, 4):
        its = table.of(org)
        assert {user.name: user for user in copy.users(org)} == its.users
        assert set(copy.acls(org)) == set(its.rules)
        assert set(copy.quotas(org)) == set(its.quotas)


def ask(table: SecurityTable, copy: Directory, most: int) -> None:
    """One answer of at most `most` rows, as the broker makes it."""
    (incarnation, version), began = copy.asked, copy.began
    restart = incarnation != b"i" or table.floor > max(version, began)
    if restart:
        began = table.version
    found, reached = table.after(-1 if restart else version, most)
    changes: list[SecurityChange] = [
        each.change for each in found if not (restart and each.change.removed)
    ]
    more = reached < table.version
    copy.learn(WatchSecurityResp(b"i", reached, restart, more, changes, began))
