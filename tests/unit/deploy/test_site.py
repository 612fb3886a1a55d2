"""The pages of the site, before they are built (`tests/integration/test_site.py` builds them)."""

from __future__ import annotations

from pathlib import Path

import pytest

from quafka_gateway.api import APIS
from quafka_mesh_ops.rights import NEEDS
from quafka_telemetry import semconv
from tests.site.build import pages
from tests.site.checks import problems
from tests.site.drawings import DRAWINGS, IMAGES
from tests.site.navigation import SECTIONS, Nav, navigation, section_of
from tests.site.reference import reference


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return pages()


def listed(nav: Nav) -> list[str]:
    """The pages of a navigation, in order."""
    return [
        page
        for entry in nav
        for target in entry.values()
        for page in ([target] if isinstance(target, str) else listed(target))
    ]


def test_every_page_is_in_the_navigation_once(texts: dict[str, str]) -> None:
    assert sorted(listed(navigation(texts))) == sorted(texts)


def test_a_new_page_gets_the_section_of_its_folder() -> None:
    assert section_of("tutorials/new.md") == "Tutorials"
    assert section_of("release-notes/0.2.0.md") == "Releases"
    assert section_of("new.md") == "How-to"
    nav = navigation({"index.md": "# Q", "tutorials/new.md": "# New"})
    (tutorials,) = (each["Tutorials"] for each in nav if "Tutorials" in each)
    assert tutorials == [{"New": "tutorials/new.md"}]
    assert len(SECTIONS) == len(nav)


def test_links_lead_to_the_copies_of_pages_or_to_the_repository(texts: dict[str, str]) -> None:
    assert "](changelog.md)" in texts["contributing.md"]
    assert "](../architecture.md)" not in texts["index.md"]
    assert "](architecture.md)" in texts["index.md"]
    assert "](contributing.md)" in texts["index.md"]
    assert "](adr/index.md)" in texts["architecture.md"]
    assert "<svg" in texts["index.md"]


def test_the_reference_has_what_the_code_declares() -> None:
    found = reference()
    for api in APIS.values():
        assert f"| {api.name}" in found["reference/apis.md"]
    assert found["reference/ops.md"].count("\n| `") == len(NEEDS)
    for name in (*semconv.ATTRIBUTES, semconv.STORE, semconv.KAFKA_ERROR):
        assert f"| `{name}` |" in found["reference/spans.md"]
    commands = found["reference/commands.md"]
    assert "`quafka snapshot restore`" in commands
    assert "| `-t TOPIC`, `--topic TOPIC` |" in commands
    assert "SUPPRESS" not in commands


def test_drawings_are_up_to_date() -> None:
    for drawing in DRAWINGS:
        file = IMAGES / f"{drawing.__name__}.svg"
        assert file.read_text("utf-8") == drawing().svg(), "python -m tests.site.drawings"


def test_what_a_page_would_load_from_elsewhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "b.html").write_text("<h1 id=top>B</h1>")
    (tmp_path / "a.html").write_text(
        '<script src="https://unpkg.com/x.js"></script><link rel="stylesheet" href="gone.css">'
        '<img src="//cdn/x.png"><a href="b.html#top"></a><a href="b.html#no"></a>'
        '<a href="c.html"></a><a href="https://example.org"></a><pre class="mermaid"></pre>'
    )
    (tmp_path / "a.css").write_text("@import 'https://fonts/x'; a{background:url(x.png)}")
    assert problems(tmp_path) == [
        "a.html: has a Mermaid diagram, whose program would be loaded from elsewhere",
        "a.html: loads https://unpkg.com/x.js",
        "a.html: loads gone.css, which does not exist",
        "a.html: loads //cdn/x.png",
        "a.html: links to b.html#no, which has no such heading",
        "a.html: links to c.html, which does not exist",
        "a.css: loads https://fonts/x",
    ]
