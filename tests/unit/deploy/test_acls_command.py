"""`quafka acls`: which rules its options name, and which it refuses."""

from __future__ import annotations

import pytest

from quafka.cli import _parser
from quafka.commands.acls import _rules
from quafka.commands.options import UsageError


def rules(*words: str) -> list[tuple[str, str, str]]:
    """The operation, resource and host of each rule."""
    options = _parser().parse_args(["acls", "add", "--allow-principal", "alice", *words])
    return [(each.operation, each.resource_type, each.host) for each in _rules(options)]


def test_rules_have_all_operations_of_their_resources() -> None:
    for resource in ("--topic=t", "--group=g", "--transactional-id=x", "--user-principal=User:u"):
        ((operation, _, host),) = rules(resource)
        assert (operation, host) == ("ALL", "*")
    assert ("DELETE", "CLUSTER", "*") in rules("--operation=Delete", "--cluster")
    assert rules("--producer", "--topic=t", "--idempotent", "--allow-host=::1")[-1] == (
        "IDEMPOTENT_WRITE", "CLUSTER", "::1",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--allow-host", "10.0.0.0/8", "--topic", "t"], "10.0.0.0/8' is not an IP address"),
        (["--deny-principal", "bob", "--deny-host", "localhost", "--topic", "t"], "localhost"),
        (["--operation", "IdempotentWrite", "--topic", "t"], "no effect on a TOPIC, only READ, WR"),
        (["--operation", "Read", "--topic", "t", "--cluster"], "READ has no effect on a CLUSTER"),
        (["--operation", "Alter", "--group", "g"], "no effect on a GROUP"),
    ],
)
def test_rules_without_effect_are_refused(words: list[str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        rules(*words)
