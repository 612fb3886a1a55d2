"""What a release promises of its dependencies, and what finds the Pythons that it is tried on."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.release import constraints, interpreters, licences
from tests.unit.deploy.test_package import PROJECT

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("wanted", constraints.wanted(), ids=str)
def test_every_dependency_is_pinned_within_its_bounds(wanted: Requirement) -> None:
    name = canonicalize_name(wanted.name)
    pinned = [each for each in constraints.pins() if canonicalize_name(each.name) == name]
    assert pinned
    for each in pinned:
        (pin,) = each.specifier
        assert pin.operator == "=="
        assert pin.version in wanted.specifier


def test_every_licence_is_allowed() -> None:
    packages = licences.installed()
    assert len(packages) > 50
    assert {name: licences.refused(each) for name, each in packages.items()} == {
        name: set() for name in packages
    }


def test_the_page_of_licences_lists_every_pinned_package() -> None:
    assert [*licences.listed()] == constraints.names()
    assert "unknown" not in licences.listed().values()


@pytest.mark.parametrize(
    ("about", "refused"),
    [
        (["License-Expression: MIT AND (Apache-2.0 OR BSD-3-Clause)"], set()),
        (["License-Expression: MIT AND AGPL-3.0-only"], {"AGPL-3.0-only"}),
        (["License: Apache 2.0"], set()),
        (["License: see LICENSE", "Classifier: License :: OSI Approved :: MIT License"], set()),
        (["Classifier: License :: OSI Approved :: GNU General Public License (GPL)"],
         {"GNU General Public License", "GPL"}),
        ([], {"unknown"}),
    ],
)  # fmt: skip
def test_a_licence_that_is_not_allowed_is_named(
    about: Iterable[str], refused: set[str], tmp_path: Path
) -> None:
    folder = tmp_path / "some-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("\n".join(["Name: some", "Version: 1", *about, ""]))
    assert licences.refused(PathDistribution(folder)) == refused


def test_a_python_that_does_not_run_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyenv puts `python3.12` on the PATH for versions that are not selected, too."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "uv"))
    _program(tmp_path / "bin" / "python9.8", "exit 127")
    _program(tmp_path / "pyenv" / "versions" / "9.8.9" / "bin" / "python", "echo 9.8")
    newest = _program(tmp_path / "pyenv" / "versions" / "9.8.10" / "bin" / "python", "echo 9.8")
    _program(tmp_path / "pyenv" / "versions" / "9.8.11" / "bin" / "python", "echo 9.7")
    by_uv = _program(tmp_path / "uv" / "cpython-9.7.1" / "bin" / "python9.7", "echo 9.7")
    interpreters.find.cache_clear()
    assert interpreters.find("9.8") == newest
    assert interpreters.find("9.7") == by_uv
    assert interpreters.find("9.6") is None


def test_the_version_has_release_notes() -> None:
    version = PROJECT["project"]["version"]
    notes = (ROOT / "docs" / "release-notes" / f"{version}.md").read_text()
    assert notes.startswith(f"# Quafka {version}\n")


def _program(path: Path, line: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return str(path)
