"""The order of the site's pages. A page that no section names is put into one by its folder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import TypeAlias

Nav: TypeAlias = list[dict[str, "str | Nav"]]

SECTIONS: dict[str, tuple[str, ...]] = {
    "Start": (
        "index.md", "install.md", "quick-start.md", "features.md", "limits.md", "comparison.md",
        "faq.md",
    ),
    "Tutorials": (
        "tutorials/first-topic.md", "tutorials/flights.md", "tutorials/tenants.md",
        "tutorials/bucket.md", "tutorials/spark.md", "tutorials/from-kafka.md",
    ),
    "Concepts": (
        "concepts/overview.md", "concepts/log.md", "concepts/object-store.md",
        "concepts/tenants.md", "groups.md", "share-groups.md",
        "transactions.md", "compaction.md",
    ),
    "How-to": (
        "operations.md", "runbooks.md", "kubernetes.md", "upgrade.md", "console.md", "traces.md",
        "object-store.md", "snapshots.md", "spark.md", "kafka-folders.md", "redis-streams.md",
    ),
    "Security": ("security.md",),
    "Reference": (
        "configuration.md", "topic-configs.md", "cli.md", "reference/commands.md",
        "reference/metrics.md", "reference/spans.md", "reference/apis.md", "reference/ops.md",
        "compatibility.md",
    ),
    "Figures": ("performance.md", "reliability.md"),
    "Releases": ("changelog.md", "licences.md"),
    "Design": (
        "contributing.md", "architecture.md", "wal.md", "hostile.md", "performance-history.md",
        "adr/index.md",
    ),
}  # fmt: skip
"""The sections, and the pages that come first in each. A page that does not exist is left out."""

_FOLDERS = {
    "tutorials": "Tutorials", "concepts": "Concepts", "reference": "Reference",
    "release-notes": "Releases", "runbooks": "How-to", "adr": "Design",
}  # fmt: skip
_OTHERS = "How-to"
_TITLES = {
    "index.md": "Quafka", "adr/index.md": "Index", "faq.md": "FAQ",
    "cli.md": "The command", "reference/commands.md": "All commands and flags",
    "wal.md": "The log on disk", "contributing.md": "Contributing",
}  # fmt: skip
_HEADING = re.compile(r"^# (.+)$", re.MULTILINE)


def section_of(page: str) -> str:
    """The section of a page that no section names."""
    folder = PurePosixPath(page).parts[0]
    return _FOLDERS.get(folder, _OTHERS)


def title_of(page: str, text: str) -> str:
    """Its title in the navigation: that of the table above, or its first heading.

    Raises:
        ValueError: the page has no heading.
    """
    if page in _TITLES:
        return _TITLES[page]
    found = _HEADING.search(text)
    if found is None:
        raise ValueError(f"{page} has no heading")
    return found[1].replace("`", "")


def navigation(pages: Mapping[str, str]) -> Nav:
    """The navigation for the texts of all pages, by path."""
    placed = {page: name for name, named in SECTIONS.items() for page in named}
    nav: Nav = []
    for name, first in SECTIONS.items():
        rest = sorted(
            page for page in pages if page not in placed and section_of(page) == name
        )  # fmt: skip
        decisions = [page for page in rest if page.startswith("adr/")]
        entries: Nav = [
            {title_of(page, pages[page]): page}
            for page in (*first, *(page for page in rest if page not in decisions))
            if page in pages and page != "adr/index.md"
        ]
        if "adr/index.md" in first:
            index: Nav = [{_TITLES["adr/index.md"]: "adr/index.md"}]
            listed: Nav = [{title_of(page, pages[page]): page} for page in decisions]
            entries.append({"Decisions": index + listed})
        nav.append({name: entries})
    return nav
