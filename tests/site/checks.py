"""What a reader's browser would miss, or load from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADED = {
    ("script", "src"), ("link", "href"), ("img", "src"), ("img", "srcset"), ("iframe", "src"),
    ("source", "src"), ("source", "srcset"), ("video", "src"), ("audio", "src"), ("object", "data"),
    ("embed", "src"), ("use", "href"), ("image", "href"),
}  # fmt: skip
_NOT_LOADED = {"canonical", "next", "prev", "alternate"}
_IN_STYLES = re.compile(r"url\(\s*[\"']?([^\"')]+)|@import\s+[\"']([^\"']+)")


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = {"", "__top"}
        self.diagrams = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        self.diagrams |= "mermaid" in given.get("class", "").split()
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and given.get("rel") in _NOT_LOADED:
            return
        self.loaded += [value for name, value in given.items() if (tag, name) in _LOADED]


def problems(site: Path) -> list[str]:
    """One line for each link that leads nowhere, and for each thing from another server."""
    parsed = {page: _Page(page.read_text("utf-8")) for page in sorted(site.rglob("*.html"))}
    found = [
        f"{page.relative_to(site)}: {problem}"
        for page, content in parsed.items()
        for problem in _of_page(site, page, content, parsed)
    ]
    for style in sorted(site.rglob("*.css")):
        for match in _IN_STYLES.finditer(style.read_text("utf-8")):
            url = match[1] or match[2]
            if _is_elsewhere(url):
                found.append(f"{style.relative_to(site)}: loads {url}")
    return found


def _of_page(site: Path, page: Path, content: _Page, all_pages: dict[Path, _Page]) -> Iterator[str]:
    if content.diagrams:
        yield "has a Mermaid diagram, whose program would be loaded from elsewhere"
    for url in content.loaded:
        if _is_elsewhere(url):
            yield f"loads {url}"
        elif _target(site, page, url) is None:
            yield f"loads {url}, which does not exist"
    for url in content.links:
        parts = urlsplit(url)
        if parts.scheme or parts.netloc:
            continue
        target = _target(site, page, url)
        if target is None:
            yield f"links to {url}, which does not exist"
        elif target in all_pages and unquote(parts.fragment) not in all_pages[target].anchors:
            yield f"links to {url}, which has no such heading"


def _is_elsewhere(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme not in ("", "data") or bool(parts.netloc)


def _target(site: Path, page: Path, url: str) -> Path | None:
    parts = urlsplit(url)
    if parts.scheme == "data" or not parts.path:
        return page
    path = unquote(parts.path)
    target = (site / path.lstrip("/") if path.startswith("/") else page.parent / path).resolve()
    target = target / "index.html" if target.is_dir() else target
    return target if target.exists() else None
