"""The licences of all dependencies, and which are allowed; `docs/licences.md` lists them.

`python -m tests.release.licences` writes the page from the packages of this environment.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import Distribution, PackageMetadata, distributions
from pathlib import Path

from packaging.utils import NormalizedName, canonicalize_name

from tests.release import constraints

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "licences.md"
ALLOWED = {
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0",
    "MPL-2.0", "PSF-2.0", "Unlicense", "Zlib",
}  # fmt: skip
"""SPDX identifiers. MPL-2.0 is about changes to the package's own files only."""
EXCEPTIONS = {
    "docutils": "Public-Domain AND BSD-2-Clause AND GPL-3.0-or-later",
}
"""Packages of which not every part has an allowed licence. Of docutils, the GPL is that of an Emacs
mode, which is not in the wheel."""
_IDENTIFIERS = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
"""Names from before PEP 639. Each package here that says `BSD License` has three clauses."""
_HEAD = """\
# Licences

Quafka has the [Apache License 2.0](../LICENSE). It is installed with these packages, most of them \
for an extra only; [their versions](../deploy/release/constraints.txt) are pinned for each release.

| package | licence |
| --- | --- |
"""


def declared(package: Distribution) -> str:
    """A package's licence as an SPDX expression; names that have no identifier stay as they are."""
    about = package.metadata
    name = canonicalize_name(about["Name"])
    if name in EXCEPTIONS:
        return EXCEPTIONS[name]
    expression = _field(about, "License-Expression")
    if expression:
        return expression
    text = _field(about, "License").partition("\n")[0]
    if text and identifiers(_IDENTIFIERS.get(text, text)) <= ALLOWED:
        return _IDENTIFIERS.get(text, text)
    named = [each.rpartition(" :: ")[2] for each in about.get_all("Classifier") or ()
             if each.startswith("License :: ")]  # fmt: skip
    return " AND ".join(_IDENTIFIERS.get(each, each) for each in named) or text or "unknown"


def _field(about: PackageMetadata, name: str) -> str:
    """The value of a field; empty if there is none."""
    return str(next(iter(about.get_all(name) or ()), ""))


def identifiers(expression: str) -> set[str]:
    """The licences in an SPDX expression."""
    parts = re.split(r"\s+(?:AND|OR)\s+|[()]", expression)
    return {part.strip() for part in parts if part.strip()}


def refused(package: Distribution) -> set[str]:
    """The licences of a package that are not allowed."""
    if canonicalize_name(package.metadata["Name"]) in EXCEPTIONS:
        return set()
    return identifiers(declared(package)) - ALLOWED


def installed(path: list[str] | None = None) -> dict[NormalizedName, Distribution]:
    """The pinned packages that are in an environment, by name; by default in this one."""
    names = {*constraints.names()}
    found = {
        canonicalize_name(each.metadata["Name"]): each
        for each in distributions(path=sys.path if path is None else path)
    }
    return {name: found[name] for name in sorted(names & found.keys())}


def page(packages: dict[NormalizedName, Distribution]) -> str:
    """The text of the page. A package that is not installed here keeps its line."""
    before = listed() if PAGE.exists() else {}
    rows = ""
    for name in constraints.names():
        found = packages.get(name)
        licence = before.get(name, "unknown") if found is None else declared(found)
        rows += f"| [{name}](https://pypi.org/project/{name}/) | {licence} |\n"
    return _HEAD + rows


def listed() -> dict[NormalizedName, str]:
    """The licences on the page, by package."""
    rows = re.findall(r"^\| \[([\w.-]+)\]\([^)]+\) \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    return {canonicalize_name(name): licence for name, licence in rows}


if __name__ == "__main__":
    PAGE.write_text(page(installed()))
