"""Addresses of views."""

from __future__ import annotations

import pytest

pytest.importorskip("nicegui", reason="the extra quafka[console]")

from quafka_console.views.parts import address


def test_the_names_of_what_was_asked_may_be_any() -> None:
    """Before a sign-in they come from anybody."""
    query = {"path": "x", "self": "y", "query": "", "a b": "1&2"}
    assert address.link_of("/topics", query) == "/topics?path=x&self=y&a+b=1%262"
