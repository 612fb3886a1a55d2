"""Every path and every relative link in the documentation leads to something that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])

_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_FOLDERS = ("proto", "mesh_ops", "broker", "gateway", "spark", "deploy", "tests", "docs", ".ci")
_PATH = re.compile(rf"(?<![\w./-])(?:{'|'.join(map(re.escape, _FOLDERS))})/[\w./*{{}},-]*[\w/*}}]")
_MODULE = re.compile(r"(?<![\w./-])(?:[\w{},]+/)*[\w{},]+\.py(?!\w)")
_BRACES = re.compile(r"\{([^{}]*)\}")


def expanded(path: str) -> list[str]:
    """`a/{b,c}.py` as the shell reads it."""
    found = _BRACES.search(path)
    if found is None:
        return [path]
    head, tail = path[: found.start()], path[found.end() :]
    return [whole for each in found[1].split(",") for whole in expanded(head + each + tail)]


def paths(text: str) -> set[str]:
    """The paths of this repository that a page names, in code spans and in code blocks."""
    blocks = _FENCE.findall(text)
    spans = _CODE.findall(_FENCE.sub("", text))
    named = {found for code in (*blocks, *spans) for found in _PATH.findall(code)}
    return {path for each in named for path in expanded(each)}


def modules() -> set[str]:
    """Every way to name a Python file of the project: its path, and each end of it."""
    files = (file for name in _FOLDERS for file in (ROOT / name).rglob("*.py"))
    parts = [file.relative_to(ROOT).parts for file in files]
    return {"/".join(each[at:]) for each in parts for at in range(len(each))}


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = _HEADING.findall(_FENCE.sub("", page.read_text("utf-8")))
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_exist(page: Path) -> None:
    missing = {path for path in paths(page.read_text("utf-8")) if not any(ROOT.glob(path))}
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_modules_exist(page: Path) -> None:
    spans = _CODE.findall(_FENCE.sub("", page.read_text("utf-8")))
    named = {found for code in spans for found in _MODULE.findall(code)}
    assert {path for each in named for path in expanded(each)} <= modules()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(_FENCE.sub("", page.read_text("utf-8"))):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_names_in_files_exist() -> None:
    """Names as in "`file.py:name`" and "`name` in `file.py`"."""
    sources = {
        file.relative_to(ROOT).as_posix(): file.read_text("utf-8")
        for name in _FOLDERS
        for file in (ROOT / name).rglob("*.py")
    }
    text = "".join(
        (ROOT / page).read_text("utf-8") for page in ("ARCHITECTURE.md", "CONTRIBUTING.md")
    )
    named = re.findall(r"`([\w/]+\.py):(\w+)`", text)
    named += [(end, name) for name, end in re.findall(r"`(\w+)` in `([\w/]+\.py)`", text)]
    assert len(named) > 20
    for end, name in named:
        candidates = [source for path, source in sources.items() if f"/{path}".endswith(f"/{end}")]
        defined = re.compile(rf"^\s*(async )?(def |class |self\.)?{name}\b", re.MULTILINE)
        assert any(map(defined.search, candidates)), f"{end}:{name}"


def test_every_decision_is_in_the_index_once() -> None:
    index = (DOCS / "adr" / "README.md").read_text("utf-8")
    pages = sorted(page.name for page in (DOCS / "adr").glob("0*.md"))
    linked = re.findall(r"^\| \[\d+\]\((0[^)]*\.md)\)", index, re.MULTILINE)
    assert sorted(linked) == pages
    for page in pages:
        assert f"[{int(page[:4])}]({page})" in index


def test_a_superseded_decision_names_its_successor() -> None:
    index = (DOCS / "adr" / "README.md").read_text("utf-8")
    superseded = re.findall(r"\((0[^)]*\.md)\)[^|]*\|[^|]*\|[^|]*superseded by \[(\d+)\]", index)
    assert superseded
    for page, successor in superseded:
        head = (DOCS / "adr" / page).read_text("utf-8").split("**Context.**")[0]
        assert f"Superseded by [{successor}]" in head


def test_the_checker_sees_what_is_missing() -> None:
    assert paths("`tests/nothing_here.py` and broker/prose.py") == {"tests/nothing_here.py"}
    assert expanded("a/{b,c}.py") == ["a/b.py", "a/c.py"]


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) < 100
