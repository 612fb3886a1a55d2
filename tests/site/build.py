"""Builds the site from docs/ and the pages at the root of the repository.

The pages are copied into a temporary folder. There, links that leave docs/ lead to the copies or to
GitHub, pictures become part of their pages, and the reference is written from the code. Zensical
then builds that folder; it fails for a link that leads nowhere.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path, PurePosixPath

import yaml

from tests.site.navigation import navigation
from tests.site.reference import reference

ROOT = Path(__file__).parents[2]
SETTINGS = Path(__file__).with_name("zensical.yml")

AT_ROOT = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Files beside docs/, and the page of the site that a link to each leads to."""

_SHIM = "https://unpkg.com/iframe-worker/shim"
"""What Zensical's offline plugin would load from elsewhere for the search in files."""
_FILE_WORKER = Path(__file__).with_name("file_worker.js")

_FENCE = re.compile(r"(^```.*?^```[^\n]*$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(\]\()([^)\s]+)(\))")
_PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+\.svg)\)")


class BuildError(Exception):
    """The site cannot be built; the text has the reasons."""


def build(target: Path) -> None:
    """Build the site into a folder, which is replaced.

    Raises:
        BuildError: a link leads nowhere, or a page cannot be read.
    """
    with tempfile.TemporaryDirectory() as folder:
        stage = Path(folder)
        _write(stage)
        command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
        done = subprocess.run(
            command, cwd=stage, env=os.environ | {"NO_COLOR": "1"}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        if done.returncode:
            raise BuildError(done.stdout + done.stderr)
        _localise(stage / "site")
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(stage / "site", target)


def pages() -> dict[str, str]:
    """The Markdown of every page of the site, by its path there."""
    docs = ROOT / "docs"
    found = {
        _staged(PurePosixPath("docs") / page.relative_to(docs).as_posix()): page
        for page in sorted(docs.rglob("*.md"))
    }
    found |= {page: ROOT / name for name, page in AT_ROOT.items() if page != "index.md"}
    texts = {page: _rewritten(page, source) for page, source in found.items()}
    return texts | reference()


def _write(stage: Path) -> None:
    texts = pages()
    for page, text in texts.items():
        path = stage / "docs" / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    for picture in (ROOT / "docs" / "images").glob("*.png"):
        copy = stage / "docs" / "images" / picture.name
        copy.parent.mkdir(exist_ok=True)
        shutil.copyfile(picture, copy)
    shutil.copyfile(SETTINGS.with_name("site.css"), stage / "docs" / "site.css")
    settings = {**yaml.safe_load(SETTINGS.read_text("utf-8")), "nav": navigation(texts)}
    (stage / "mkdocs.yml").write_text(json.dumps(settings), "utf-8")  # which is YAML, too


def _localise(site: Path) -> None:
    """Put our own script in the place of the one that would be loaded from elsewhere."""
    script = site / "assets" / _FILE_WORKER.name
    shutil.copyfile(_FILE_WORKER, script)
    for page in site.rglob("*.html"):
        text = page.read_text("utf-8")
        page.write_text(text.replace(_SHIM, os.path.relpath(script, page.parent)), "utf-8")


def _staged(path: PurePosixPath) -> str:
    """The page of the site for a page of the repository."""
    inside = path.relative_to("docs")
    return str(inside.with_name("index.md") if inside.name == "README.md" else inside)


def _rewritten(page: str, source: Path) -> str:
    """The text of a page, with links as they are in the site."""

    def link(found: re.Match[str]) -> str:
        return found[1] + _link(found[2], page, source) + found[3]

    def picture(found: re.Match[str]) -> str:
        return _inline(source.parent / found[2], found[1])

    parts = _FENCE.split(source.read_text("utf-8"))
    parts[::2] = [_LINK.sub(link, _PICTURE.sub(picture, text)) for text in parts[::2]]
    return "".join(parts)


def _link(link: str, page: str, source: Path) -> str:
    if "://" in link or link.startswith(("#", "mailto:")):
        return link
    name, mark, anchor = link.partition("#")
    path = Path(os.path.normpath(source.parent / name)).relative_to(ROOT).as_posix()
    if path in AT_ROOT:
        target = AT_ROOT[path]
    elif path.startswith("docs/") and not path.endswith(".py"):
        target = _staged(PurePosixPath(path))
    else:
        return f"{_repository()}/blob/main/{path}{mark}{anchor}"
    return os.path.relpath(target, PurePosixPath(page).parent) + mark + anchor


def _inline(picture: Path, words: str) -> str:
    """A drawing as part of the page, so that it has the colours of the page."""
    drawing = " ".join(picture.read_text("utf-8").split("\n"))
    return f'<figure class="drawing" role="img" aria-label="{words}">{drawing}</figure>'


def _repository() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    url: str = project["urls"]["Source"]
    return url
