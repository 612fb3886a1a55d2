"""Wheel and sdist of the same sources are the same bytes, wherever and whenever they are built."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

import pytest

from tests.release.build import ROOT, build, digests
from tests.unit.deploy.test_package import PACKAGES

pytestmark = pytest.mark.long

_AT = 1_700_000_000
_FILES = ("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", ".gitignore")


def _copy(folder: Path, modified: int, mode: int) -> Path:
    """A copy of what the wheel is made of, with these times and modes of its files."""
    folder.mkdir()
    for name in _FILES:
        shutil.copy(ROOT / name, folder)
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    for each in folder.rglob("*"):
        if each.is_file():
            each.chmod(mode)
        os.utime(each, (modified, modified))
    return folder


def test_two_builds_are_the_same_bytes(tmp_path: Path) -> None:
    first = _copy(tmp_path / "first", 1_600_000_000, 0o644)
    second = _copy(tmp_path / "elsewhere", 1_650_000_000, 0o600)
    built = build(first, _AT, tmp_path / "one")
    assert digests(built) == digests(build(second, _AT, tmp_path / "two"))
    with zipfile.ZipFile(built[1]) as wheel:
        own = {name.partition("/")[0] for name in wheel.namelist()}
        times = {each.date_time for each in wheel.infolist()}
    assert times == {(2023, 11, 14, 22, 13, 20)}
    info = {name for name in own if name.endswith(".dist-info")}
    assert len(info) == 1
    assert own - info == {Path(package).name for package in PACKAGES}
