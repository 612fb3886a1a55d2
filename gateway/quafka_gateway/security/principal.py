"""Principals: the names of clients, as Kafka's ACLs and quotas know them."""

from __future__ import annotations

from typing import NamedTuple


class Principal(NamedTuple):
    """A client's name within its org, "User:alice"."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")
"""The principal of every client at a listener without authentication."""
