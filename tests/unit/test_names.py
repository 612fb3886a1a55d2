"""Each public class has a name of its own, so that a search for it finds one definition."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator

import pytest

from tests.shape import Module, product, repeated

EXCEPTIONS: dict[str, str] = {
    "GroupOffsets": "of a broker, and of the client",
    "StatusPage": "of a process, and as the console has read it",
}
"""Names with several definitions, and why."""
_ERROR = re.compile(r"(?<![\w.])[A-Z]\w*Error\b")
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@pytest.fixture(scope="module")
def modules() -> list[Module]:
    return product()


def test_every_public_class_has_one_definition(modules: list[Module]) -> None:
    assert len(modules) > 800
    found = repeated(name for module in modules for name in module.public_classes())
    assert found.keys() == EXCEPTIONS.keys()


def test_no_class_is_imported_under_the_name_of_another_one(modules: list[Module]) -> None:
    classes = {name for module in modules for name in module.public_classes()}
    borrowed = {
        (module.path, each.asname)
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom)
        for each in node.names
        if each.asname in classes and each.asname != each.name
    }
    assert borrowed == set()


def test_the_errors_that_docstrings_name_exist(modules: list[Module]) -> None:
    known = {*dir(builtins), *_names(modules)}
    named = {
        (module.path, error)
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, _DOCUMENTED)
        for error in _ERROR.findall(ast.get_docstring(node) or "")
    }
    assert len(named) > 300
    assert {each for each in named if each[1] not in known} == set()


def _names(modules: list[Module]) -> Iterator[str]:
    """The classes of the product, and what it imports from elsewhere."""
    for module in modules:
        yield from (node.name for node in module.classes())
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ImportFrom):
                yield from (each.name for each in node.names)
