"""The shape of the product's code, in figures: `python -m tests.shape [CHECKOUT ...]`.

Prints a table with one column for each checkout (default: this one), to compare before and after.
"""

from __future__ import annotations

import argparse
import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
_FOLDERS = ("proto", "mesh_ops", "broker", "gateway", "spark", "deploy")
_MOST_METHODS = 25
_MOST_ATTRIBUTES = 15


@dataclass(slots=True)
class Module:
    """One file of the product."""

    name: str
    """With dots, as it is imported."""
    path: str
    lines: int
    tree: ast.Module

    @property
    def package(self) -> str:
        """The first part of the name."""
        return self.name.partition(".")[0]

    def imports(self) -> Iterator[str]:
        """Every module that it imports from, also in functions and for annotations."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (each.name for each in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.module

    def classes(self) -> Iterator[ast.ClassDef]:
        """Its classes, those within others and in functions too."""
        return (node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef))

    def public_classes(self) -> Iterator[str]:
        """The names that other modules may import."""
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name


def product(root: Path = ROOT) -> list[Module]:
    """The modules of the product in a checkout."""
    found: list[Module] = []
    for folder in _FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            text = path.read_text()
            inner = path.relative_to(root / folder).with_suffix("").as_posix()
            name = inner.replace("/", ".").removesuffix(".__init__")
            relative = path.relative_to(root).as_posix()
            found.append(Module(name, relative, text.count("\n"), ast.parse(text)))
    return found


def repeated(names: Iterator[str]) -> dict[str, int]:
    """The names that occur more than once, and how often."""
    return {name: count for name, count in Counter(names).items() if count > 1}


def methods(node: ast.ClassDef) -> int:
    """How many methods a class defines."""
    return sum(isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in node.body)


def attributes(node: ast.ClassDef) -> int:
    """How many attributes a class has: declared fields, and what its methods assign to `self`."""
    found: set[str] = set()
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            found.add(each.target.id)
    for part in ast.walk(node):
        if (
            isinstance(part, ast.Attribute)
            and isinstance(part.ctx, ast.Store)
            and isinstance(part.value, ast.Name)
            and part.value.id == "self"
        ):
            found.add(part.attr)
    return len(found)


def shape(root: Path = ROOT) -> dict[str, int]:
    """The figures of a checkout."""
    modules = product(root)
    packages = {each.package for each in modules}
    figures = {"lines": sum(each.lines for each in modules)}
    for package in sorted(packages):
        figures[f"lines of {package}"] = sum(m.lines for m in modules if m.package == package)
    figures["files"] = len(modules)
    rooms = {each.name.split(".")[1] for each in modules if each.name.startswith("quafka_broker.")}
    figures["rooms of quafka_broker"] = len(rooms)
    behaving = [node for each in modules for node in each.classes() if "schema" not in each.name]
    figures[f"classes with more than {_MOST_METHODS} methods"] = sum(
        methods(node) > _MOST_METHODS for node in behaving
    )
    figures[f"classes with methods and more than {_MOST_ATTRIBUTES} attributes"] = sum(
        methods(node) > 1 and attributes(node) > _MOST_ATTRIBUTES for node in behaving
    )
    shared = repeated(Path(m.path).name for m in modules if not m.path.endswith("__init__.py"))
    figures["file names of several files"] = len(shared)
    figures["files with such a name"] = sum(shared.values())
    twice = repeated(name for each in modules for name in each.public_classes())
    figures["public classes whose name is defined more than once"] = len(twice)
    figures["op codes"] = _op_codes(modules)
    figures["modules that import slices"] = sum(
        any(name.endswith(".slices") for name in each.imports()) for each in modules
    )
    arrows = {(each.package, name.partition(".")[0]) for each in modules for name in each.imports()}
    figures["arrows between packages"] = sum(a != b and b in packages for a, b in arrows)
    figures["modules that import aioquic"] = sum(
        any(name.partition(".")[0] == "aioquic" for name in each.imports()) for each in modules
    )
    return figures


def _op_codes(modules: list[Module]) -> int:
    for module in modules:
        for node in module.classes():
            if node.name == "OpCode":
                return sum(isinstance(each, ast.Assign) for each in node.body)
    return 0


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.shape", description=__doc__)
    parser.add_argument("checkouts", nargs="*", type=Path, default=[ROOT], metavar="CHECKOUT")
    checkouts: list[Path] = parser.parse_args().checkouts
    found = [shape(each) for each in checkouts]
    print("| | " + " | ".join(str(each) for each in checkouts) + " |")
    print("| --- |" + " ---: |" * len(checkouts))
    for name in dict.fromkeys(name for each in found for name in each):
        print(f"| {name} | " + " | ".join(str(each.get(name, "")) for each in found) + " |")


if __name__ == "__main__":
    main()
