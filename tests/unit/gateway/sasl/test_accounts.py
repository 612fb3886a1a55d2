"""Names, orgs, and what unknown names seem to have."""

from __future__ import annotations

import pytest

from quafka_gateway.security.directory import Directory
from quafka_gateway.security.sasl.accounts import Accounts
from quafka_gateway.security.sasl.passwords import HASHES
from quafka_mesh_ops.ops.security import ScramCredential, WatchSecurityResp
from tests.unit.gateway.sasl.users import (
    SECRET,
    accounts_of,
    credential,
    directory_of,
    learn,
    org,
    user,
)

ALL = tuple(HASHES)


@pytest.mark.parametrize(
    ("name", "listener_org", "placed"),
    [
        ("alice", "", (1, "alice")),
        ("alice@acme", "", (7, "alice")),
        ("alice@example.org@acme", "", (7, "alice@example.org")),
        ("alice@nobody", "", (0, "alice@nobody")),
        ("@acme", "", (0, "@acme")),
        ("alice@acme", "acme", (7, "alice@acme")),
        ("alice", "7", (7, "alice")),
        ("alice", "nobody", (0, "alice")),
    ],
)
def test_a_name_has_an_org(name: str, listener_org: str, placed: tuple[int, str]) -> None:
    accounts = accounts_of(org(1, "own"), org(7, "acme"))
    assert accounts.place(name, listener_org)[:2] == placed


def test_a_known_user_has_its_own_credential_for_the_first_mechanism_it_has() -> None:
    long = credential("secret", "SCRAM-SHA-512")
    accounts = accounts_of(user("alice", long))
    assert accounts.find("alice", ALL).credential is long
    assert accounts.find("alice", ALL).known
    assert not accounts.find("alice", ("SCRAM-SHA-256",)).known


def test_an_unknown_name_always_seems_to_have_the_same_credential_shaped_as_the_others() -> None:
    usual = credential("secret", iterations=15_000, salt=b"\x80" * 20)
    accounts = accounts_of(user("alice", usual), user("bob", usual), user("c", credential("x")))
    first = accounts.find("nobody", ("SCRAM-SHA-256",))
    assert not first.known
    assert first == accounts.find("nobody", ("SCRAM-SHA-256",))
    assert (first.credential.iterations, len(first.credential.salt)) == (15_000, 20)
    assert first.credential.salt != accounts.find("other", ("SCRAM-SHA-256",)).credential.salt
    again = Accounts(directory_of(user("alice", usual)), 1, SECRET)
    assert first == again.find("nobody", ("SCRAM-SHA-256",))


def test_gateways_of_a_cluster_make_up_the_same_credentials() -> None:
    answer = WatchSecurityResp(b"i", 0, restart=True, more=False, changes=[], secret=b"shared")
    found: list[ScramCredential] = []
    for own in (b"one", b"two"):
        directory = Directory()
        accounts = Accounts(directory, 1, own)
        alone = accounts.find("nobody", ALL).credential
        directory.learn(answer)
        found += [alone, accounts.find("nobody", ALL).credential]
        learn(directory, user("alice", credential("secret")))  # no answer without it takes it away
        assert accounts.find("nobody", ALL).credential.salt == found[-1].salt
    assert found[0] != found[2]
    assert found[1] == found[3] not in (found[0], found[2])


def test_the_shape_follows_the_users() -> None:
    directory = directory_of()
    accounts = Accounts(directory, 1, SECRET)
    assert accounts.find("nobody", ALL).credential.salt.isalnum()
    learn(directory, user("alice", credential("secret", iterations=8_192)))
    assert accounts.find("nobody", ALL).credential.iterations == 8_192


def test_members_of_an_org_that_is_not_active_are_unknown() -> None:
    own = credential("secret")
    directory = directory_of(org(7, "acme"), user("alice", own, org=7))
    accounts = Accounts(directory, 1, SECRET)
    assert accounts.find("alice@acme", ALL).known
    learn(directory, org(7, "acme", "suspended"))
    assert not accounts.find("alice@acme", ALL).known
    assert not accounts.holds(7, "alice", own)


def test_a_credential_is_held_until_it_changes() -> None:
    directory = directory_of(user("alice", credential("secret")))
    accounts = Accounts(directory, 1, SECRET)
    found = accounts.find("alice", ALL)
    assert accounts.holds(1, "alice", found.credential)
    learn(directory, user("alice", credential("other")))
    assert not accounts.holds(1, "alice", found.credential)
    learn(directory, user("alice"))
    assert not accounts.holds(1, "alice", found.credential)
