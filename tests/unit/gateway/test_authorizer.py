"""Super users, hosts, forgotten decisions, and what a decision may cost."""

from __future__ import annotations

from quafka_gateway.security.authorizer import Authorizer, right
from quafka_gateway.security.directory import Directory
from quafka_gateway.security.principal import Principal
from quafka_loop import clock
from quafka_mesh_ops.ops.security import OrgRecord, SecurityChange, WatchSecurityResp
from quafka_proto.acl_kinds import Operation, Pattern, Permission, ResourceKind
from tests.support.acls import acl, change, directory_with

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
READ, WRITE = right(Operation.READ, ResourceKind.TOPIC), right(Operation.WRITE, ResourceKind.TOPIC)
ORGS = [OrgRecord(1, "home", "active", []), OrgRecord(2, "acme", "active", [])]


def test_a_super_user_may_do_everything_in_its_own_org() -> None:
    deny = acl("User:*", Operation.ALL, ResourceKind.TOPIC, "*", permission=Permission.DENY)
    supers = "User:alice; User:bob@acme"
    authorizer = Authorizer(directory_with(deny, orgs=ORGS), 1, supers)
    assert authorizer.access(1, ALICE, "h").allows(READ, "t")
    assert not authorizer.access(2, ALICE, "h").allows(READ, "t")
    assert not authorizer.access(1, BOB, "h").allows(READ, "t")
    theirs = authorizer.access(2, BOB, "h")
    assert theirs.allows(READ, "t")


def test_decisions_are_forgotten_with_the_rules() -> None:
    rule = acl("User:alice", Operation.READ, ResourceKind.TOPIC, "t")
    directory = directory_with(rule)
    authorizer = Authorizer(directory, 1)
    access = authorizer.access(1, ALICE, "h")
    assert access is authorizer.access(1, ALICE, "h")
    assert access.allows(READ, "t")
    before = access.generation
    change(directory, rule, removed=True)
    assert access.generation != before
    assert not access.allows(READ, "t")
    change(directory, rule)
    change(directory, rule)  # told twice: it is one rule
    assert access.allows(READ, "t")
    change(directory, rule, removed=True)
    assert not access.allows(READ, "t")
    directory.learn(WatchSecurityResp(b"j", 1, True, False, [SecurityChange(False, acl=rule)]))
    assert access.allows(READ, "t")


def test_rules_of_another_org_have_no_meaning_here() -> None:
    authorizer = Authorizer(
        directory_with(acl("User:*", Operation.ALL, ResourceKind.TOPIC, "*", org=2)), 1
    )
    assert not authorizer.access(1, ALICE, "h").allows(READ, "t")
    assert authorizer.access(2, ALICE, "h").allows(READ, "t")


def test_nothing_is_allowed_before_the_rules_are_known() -> None:
    authorizer = Authorizer(Directory(), 1, "User:bob", allows_everyone=True)
    access = authorizer.access(1, ALICE, "h")
    assert not access.allows(READ, "t")
    assert not access.allows_any(WRITE)
    assert authorizer.access(1, BOB, "h").allows(READ, "t")


def test_a_host_is_an_address_in_any_form() -> None:
    rule = acl("User:alice", Operation.READ, ResourceKind.TOPIC, "t", host="2001:DB8:0:0::1")
    authorizer = Authorizer(directory_with(rule), 1)
    assert authorizer.access(1, ALICE, "2001:db8::1").allows(READ, "t")
    assert not authorizer.access(1, ALICE, "2001:db8::2").allows(READ, "t")


def test_hostile_patterns_are_bounded() -> None:
    """Prefixes of 1,024 lengths, as many as CreateAcls admits, nested and parting late."""
    nested = ["a" * n for n in range(1, 1_025)]
    parting = ["b" * n + end for n in range(1_024) for end in "cdefgh"]
    rules = [
        acl("User:alice", Operation.READ, ResourceKind.GROUP, name, pattern=Pattern.PREFIXED)
        for name in nested + parting
    ]
    directory = directory_with(*rules)
    began = clock.thread_time()
    access = Authorizer(directory, 1).access(1, ALICE, "h")
    assert clock.thread_time() - began < 5, "some 30 ms on an idle machine"
    read = right(Operation.READ, ResourceKind.GROUP)
    began = clock.thread_time()
    assert access.allows(read, "a" * 30_000)
    assert not access.allows(read, "b" * 30_000)
    assert access.allows(read, "b" * 900 + "c")
    assert clock.thread_time() - began < 0.5, "less than a millisecond each"


def test_a_remembered_decision_costs_little() -> None:
    rules = [
        acl(
            "User:alice",
            Operation.READ,
            ResourceKind.TOPIC,
            f"orders-{n}-",
            pattern=Pattern.PREFIXED,
        )
        for n in range(1_000)
    ]
    access = Authorizer(directory_with(*rules), 1).access(1, ALICE, "h")
    assert access.allows(READ, "orders-7-eu")
    best = min(_seconds(lambda: access.allows(READ, "orders-7-eu")) for _ in range(5))
    assert best < 2e-5, "0.15 µs on an idle machine"


def _seconds(call: object, times: int = 2_000) -> float:
    assert callable(call)
    began = clock.thread_time()
    for _ in range(times):
        call()
    return (clock.thread_time() - began) / times
