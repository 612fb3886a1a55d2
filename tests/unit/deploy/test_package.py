"""What pyproject.toml promises of the package, its extras and its page on PyPI."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from quafka.cli import WHAT_IT_IS
from tests.release import interpreters

ROOT = Path(__file__).parents[3]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES: list[str] = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
FOLDERS = ("proto", "mesh_ops", "broker", "gateway", "spark", "deploy", "docs")
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def test_every_package_has_one_description() -> None:
    assert PROJECT["project"]["description"] == WHAT_IT_IS
    for file, line in (
        ("README.md", f"**{WHAT_IT_IS}.**"),
        ("deploy/container/Containerfile", f'image.description="{WHAT_IT_IS}"'),
        ("deploy/debian/build.sh", f"Description: {WHAT_IT_IS}\n"),
        ("deploy/helm/quafka/Chart.yaml", f"description: {WHAT_IT_IS}\n"),
        ("tests/site/zensical.yml", f"site_description: {WHAT_IT_IS}\n"),
    ):
        assert line in (ROOT / file).read_text(), file


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_says_that_it_has_types(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


def test_every_extra_is_for_users() -> None:
    extras = sorted(PROJECT["project"]["optional-dependencies"])
    assert extras == ["avro", "console", "redis", "s3", "spark"]
    assert sorted(PROJECT["dependency-groups"]) == ["dev", "docs", "fuzz", "release", "test"]


def test_every_extra_is_installed_for_the_tests() -> None:
    extras = ",".join(PROJECT["project"]["optional-dependencies"])
    assert f"-e '.[{extras}]' --group dev" in (ROOT / "Makefile").read_text()


def test_the_pages_name_the_pythons_that_are_tested() -> None:
    classifier = "Programming Language :: Python :: "
    tested = [
        each.removeprefix(classifier)
        for each in PROJECT["project"]["classifiers"]
        if each.startswith(f"{classifier}3.")
    ]
    assert tuple(tested) == interpreters.VERSIONS
    assert PROJECT["project"]["requires-python"] == f">={tested[0]}"
    pages = ("README.md", "CONTRIBUTING.md", "docs/install.md", "docs/quick-start.md",
             f"docs/release-notes/{PROJECT['project']['version']}.md")  # fmt: skip
    for page in pages:
        assert f"Python {tested[0]} to {tested[-1]}" in (ROOT / page).read_text("utf-8"), page


def test_the_pages_install_what_can_be_had() -> None:
    """The package is not on PyPI: one page says so, and how to install it instead."""
    install = (ROOT / "docs" / "install.md").read_text("utf-8")
    assert "not published yet" in install
    wheel = f"quafka-{PROJECT['project']['version']}-py3-none-any.whl"
    pages = {*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.py")}
    about_releases = {ROOT / "CHANGELOG.md", ROOT / "docs" / "install.md"}
    for page in pages - about_releases:
        if {"adr", "release-notes"}.isdisjoint(page.parts):
            text = page.read_text("utf-8")
            assert re.search(r"pip install [^`\n]*(?<![\w./-])'?quafka\b(?!-)", text) is None, page
            assert set(re.findall(r"quafka-\S+?\.whl", text)) <= {wheel, "quafka-….whl"}, page
    assert wheel in install


def test_every_extra_that_is_named_exists() -> None:
    """In messages, docstrings and documentation."""
    pages = [*ROOT.glob("*.md"), *(f for name in FOLDERS for f in (ROOT / name).rglob("*.md"))]
    sources = [file for name in FOLDERS for file in (ROOT / name).rglob("*.py")]
    texts = {file: file.read_text("utf-8") for file in (*pages, *sources)}
    named = {
        (extra, file.relative_to(ROOT).as_posix())
        for file, text in texts.items()
        for extras in re.findall(r"quafka\[([\w,-]+)\]", text)
        for extra in extras.split(",")
    }
    assert len(named) > 5
    extras = PROJECT["project"]["optional-dependencies"]
    assert {place for place in named if place[0] not in extras} == set()


def test_the_readme_s_links_are_absolute_on_pypi() -> None:
    """The substitutions that hatch-fancy-pypi-readme makes."""
    hook = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    text = (ROOT / "README.md").read_text("utf-8")
    relative = [link for link in _LINK.findall(text) if not link.startswith(("http", "#"))]
    assert len(relative) > 5
    for each in hook["substitutions"]:
        text = re.sub(each["pattern"], each["replacement"], text)
    files = PROJECT["project"]["urls"]["Homepage"] + "/blob/main/"
    absolute = [link for link in _LINK.findall(text) if not link.startswith("#")]
    assert all(link.startswith("https://") for link in absolute)
    named = [link.removeprefix(files) for link in absolute if link.startswith(files)]
    assert named == relative
    for link in named:  # without anchors, which test_documentation checks
        assert (ROOT / link.partition("#")[0]).exists(), link
