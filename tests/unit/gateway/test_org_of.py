"""Whose client it is that has authenticated under a name."""

from __future__ import annotations

import pytest

from quafka_gateway.security.directory import Directory
from quafka_gateway.security.org_of import org_by_text, org_of
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
        (None, "alice", (OWN, "alice")),
        (None, "alice@acme", (ACME, "alice")),
        (None, "alice@example.org", (OWN, "alice@example.org")),
        (None, "alice@example.org@acme", (ACME, "alice@example.org")),
        (None, "alice@", (OWN, "alice@")),
        (None, "@acme", (ACME, "")),
        (9, "alice", (9, "alice")),
        (9, "alice@acme", (9, "alice@acme")),
    ],
)
def test_the_listener_decides_then_the_name(
    listener: int | None, name: str, expected: tuple[int, str]
) -> None:
    assert org_of(_directory(), OWN, listener, name) == expected


def test_settings_name_an_org_by_id_or_name() -> None:
    directory = _directory()
    assert org_by_text(directory, "acme") == ACME
    assert org_by_text(directory, "12") == 12
    assert org_by_text(directory, "nobody") is None
