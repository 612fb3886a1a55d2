"""Each public class has a name of its own, so that a search for it finds one definition."""

from __future__ import annotations

from tests.shape import product, repeated

EXCEPTIONS: dict[str, str] = {}
"""Names with several definitions, and why."""


def test_every_public_class_has_one_definition() -> None:
    modules = product()
    assert len(modules) > 800
    found = repeated(name for module in modules for name in module.public_classes())
    assert found.keys() == EXCEPTIONS.keys()
