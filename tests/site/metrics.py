"""The metric families that the code declares, without a program that runs.

Families are calls of `Family`, `counter` and `gauge`. A name that is put together in a loop over a
table gets one row for each entry of the table.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from quafka_mesh_ops.counters import mesh_families

_ROOT = Path(__file__).parents[2]
_FOLDERS = {
    "gateway/quafka_gateway": "gateway",
    "broker/quafka_broker": "broker",
    "mesh_ops/quafka_mesh_ops": "both",
    "mesh_ops/quafka_telemetry": "both",
}
_CALL = re.compile(r"\b(Family|counter|gauge)\(")
_CALLED = {"mesh_ops/quafka_mesh_ops/counters.py": "mesh_families"}
"""Functions that are called here because their names come from the fields of a class."""


class Described(NamedTuple):
    """One family, with the program that has it: gateway, broker, or both."""

    program: str
    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


def families() -> set[Described]:
    """All families of both programs."""
    found = {
        Described("both", each.name, each.kind.value, each.labels, each.help)
        for each in mesh_families(list)
    }
    for folder, program in _FOLDERS.items():
        for file in sorted((_ROOT / folder).rglob("*.py")):
            text = file.read_text("utf-8")
            if _CALL.search(text):
                found |= set(_Module(file, text, program).families())
    return found


class _Module:
    def __init__(self, file: Path, text: str, program: str) -> None:
        self._file = file.relative_to(_ROOT).as_posix()
        self._tree = ast.parse(text)
        self._program = program
        self._assigned = list(_assigned(self._tree))
        self._constants = dict(self._assigned)

    def families(self) -> Iterator[Described]:
        """Yield the families that are declared in this module."""
        loops = [node for node in ast.walk(self._tree) if isinstance(node, ast.For)]
        skipped = {
            id(inner)
            for node in ast.walk(self._tree)
            if isinstance(node, ast.FunctionDef) and node.name == _CALLED.get(self._file)
            for inner in ast.walk(node)
        }
        for call in ast.walk(self._tree):
            kind = _kind(call)
            if kind is None or id(call) in skipped or not isinstance(call, ast.Call):
                continue
            if isinstance(call.args[0], ast.Name):
                continue  # in the functions `counter` and `gauge` themselves
            around = [loop for loop in loops if call in ast.walk(loop)]
            yield from self._declared(call, kind, around)

    def _declared(self, call: ast.Call, kind: str, around: list[ast.For]) -> Iterator[Described]:
        labels = self._labels(call)
        help_ = call.args[2] if isinstance(call.func, ast.Name) and call.func.id == "Family" else (
            call.args[1]
        )  # fmt: skip
        if not isinstance(call.args[0], ast.JoinedStr):
            name = self._text(call.args[0], {})
            yield Described(self._program, name, kind, labels, self._text(help_, {}))
            return
        for row in self._rows(around[-1]):
            name, words = self._text(call.args[0], row), self._text(help_, row)
            yield Described(self._program, name, kind, labels, words)

    def _rows(self, loop: ast.For) -> Iterator[dict[str, ast.expr]]:
        """The names that a loop binds, for each entry of the tables that it goes through."""
        assert isinstance(loop.target, ast.Tuple), self._file
        names = [ast.unparse(each) for each in loop.target.elts]
        for entry in self._entries(loop.iter):
            assert isinstance(entry, ast.Tuple), self._file
            yield dict(zip(names, entry.elts, strict=True))

    def _entries(self, table: ast.expr) -> Iterator[ast.expr]:
        if isinstance(table, ast.Name):
            table = self._constants[table.id]
        assert isinstance(table, ast.Tuple | ast.List), self._file
        for entry in table.elts:
            if isinstance(entry, ast.Starred):
                yield from self._entries(entry.value)
            else:
                yield entry

    def _text(self, node: ast.expr, bound: dict[str, ast.expr]) -> str:
        if isinstance(node, ast.Constant):
            return str(node.value)
        if isinstance(node, ast.Name):
            return self._text(bound.get(node.id) or self._value(node), bound)
        if isinstance(node, ast.JoinedStr):
            return "".join(
                self._text(part.value if isinstance(part, ast.FormattedValue) else part, bound)
                for part in node.values
            )
        raise ValueError(f"{self._file}: {ast.unparse(node)} is not a text")

    def _value(self, used: ast.Name) -> ast.expr:
        """The last value that is assigned to a name before this use of it."""
        values = [
            value
            for name, value in self._assigned
            if name == used.id and value.lineno <= used.lineno
        ]
        if not values:
            raise ValueError(f"{self._file}: {used.id} has no value")
        return max(values, key=lambda value: value.lineno)

    def _labels(self, call: ast.Call) -> tuple[str, ...]:
        if len(call.args) > 4:
            return tuple(self._texts(call.args[4]))
        given = [each.value for each in call.keywords if each.arg == "labels"]
        return tuple(self._texts(given[0])) if given else ()

    def _texts(self, node: ast.expr) -> Iterator[str]:
        if isinstance(node, ast.Name):
            yield from self._texts(self._constants.get(node.id) or self._value(node))
        elif isinstance(node, ast.Tuple):
            for each in node.elts:
                if isinstance(each, ast.Starred):
                    yield from self._texts(each.value)
                else:
                    yield self._text(each, {})
        else:
            raise TypeError(f"{self._file}: {ast.unparse(node)} are not labels")


def _kind(call: ast.AST) -> str | None:
    """The type of the family that a call makes; None for other calls."""
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or not call.args:
        return None
    if call.func.id in ("counter", "gauge"):
        return call.func.id
    if call.func.id != "Family":
        return None
    kind = call.args[1]
    return kind.attr.lower() if isinstance(kind, ast.Attribute) else ast.unparse(kind)


def _assigned(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value
        elif (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and node.value is not None
        ):
            yield node.target.id, node.value
