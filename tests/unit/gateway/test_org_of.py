"""Whose client it is that has authenticated under a name."""

from __future__ import annotations

import pytest

from quafka_gateway.security.directory import Directory
from quafka_gateway.security.org_of import NO_ORG, org_by_text, org_of, org_of_token
from quafka_mesh_ops.ops.security import OrgRecord, SecurityChange, WatchSecurityResp

OWN, ACME = 1, 7


def _directory() -> Directory:
    directory = Directory()
    acme = OrgRecord(ACME, "acme", "active", [])
    change = SecurityChange(removed=False, org=acme)
    directory.learn(WatchSecurityResp(b"i", 0, False, False, [change]))
    return directory


@pytest.mark.parametrize(
    ("listener", "name", "expected"),
    [
        ("", "alice", (OWN, "alice", "")),
        ("", "alice@acme", (ACME, "alice", "acme")),
        ("", "alice@example.org", (NO_ORG, "alice@example.org", "")),
        ("", "alice@example.org@acme", (ACME, "alice@example.org", "acme")),
        ("", "alice@7", (NO_ORG, "alice@7", "")),
        ("", "alice@", (OWN, "alice@", "")),
        ("", "alice@.acme", (OWN, "alice@.acme", "")),
        ("", "CN=alice@acme,O=x", (OWN, "CN=alice@acme,O=x", "")),
        ("", "@acme", (NO_ORG, "@acme", "")),
        ("9", "alice", (9, "alice", "")),
        ("9", "alice@acme", (9, "alice@acme", "")),
        ("acme", "alice@acme", (ACME, "alice@acme", "acme")),
        ("none", "alice", (NO_ORG, "alice", "none")),
    ],
)
def test_the_listener_decides_then_the_name(
    listener: str, name: str, expected: tuple[int, str, str]
) -> None:
    assert org_of(_directory(), OWN, listener, name) == expected


@pytest.mark.parametrize(
    ("listener", "claim", "expected"),
    [
        ("", "", OWN), ("", "acme", ACME), ("", "7", ACME), ("", "none", NO_ORG),
        ("acme", "", ACME), ("acme", "7", ACME), ("acme", "1", NO_ORG), ("1", "acme", NO_ORG),
        ("none", "nobody", NO_ORG),
    ],
)  # fmt: skip
def test_a_token_has_its_org_in_a_claim(listener: str, claim: str, expected: int) -> None:
    user = org_of_token(_directory(), OWN, listener, claim, "alice@acme")
    assert (user.org_id, user.name) == (expected, "alice@acme")


@pytest.mark.parametrize(
    ("text", "org_id"),
    [
        ("acme", ACME), ("12", 12), ("nobody", None), ("", None), ("0", None),
        ("4294967295", 4294967295), ("4294967296", None), ("9" * 5_000, None), ("\u0667", None),
    ],
)  # fmt: skip
def test_settings_name_an_org_by_id_or_name(text: str, org_id: int | None) -> None:
    assert org_by_text(_directory(), text) == org_id
