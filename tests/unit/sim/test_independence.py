"""The checkers share no code with the product."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sim import checkers, history

FILES = [Path(history.__file__), *Path(checkers.__file__).parent.glob("*.py")]
OWN = ("tests.sim.checkers", "tests.sim.history")


def _imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module
            assert not node.level
            yield node.module


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_only_the_standard_library_is_imported(file: Path) -> None:
    others = [
        name
        for name in _imports(file)
        if not name.startswith(OWN) and name.split(".")[0] not in sys.stdlib_module_names
    ]
    assert others == []
    assert len(FILES) > 15
