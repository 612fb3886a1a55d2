"""The documentation as a site: built strictly, complete, and read without a network."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.support.ui import WebDriverWait

from tests.site.build import build
from tests.site.checks import problems
from tests.site.reference import reference
from tests.support.cluster import Cluster
from tests.support.driver import Driver, driven
from tests.support.prometheus import get

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built") / "site"
    build(folder)
    return folder


def test_every_link_leads_somewhere_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    assert problems(site) == []
    assert len(list(site.rglob("*.html"))) > 100


def found(reader: Driver) -> str:
    """What the search shows, which is apart from the page's own text."""
    script = """return [...document.querySelectorAll("*")]
        .filter(each => each.shadowRoot).map(each => each.shadowRoot.textContent).join()"""
    text: str = reader.chrome.execute_script(script)
    return text


@pytest.fixture
def served(site: Path) -> Iterator[str]:
    """The site at a server on loopback."""
    pages = partial(SimpleHTTPRequestHandler, directory=site)
    with ThreadingHTTPServer(("127.0.0.1", 0), pages) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def search(reader: Driver) -> None:
    """Open the first page, and look for a word."""
    reader.open("/index.html", "you want to")
    reader.chrome.execute_script("document.querySelector('label[for=__search]').click()")
    ActionChains(reader.chrome).send_keys("quarantine").perform()
    waits: Any = WebDriverWait(reader.chrome, 60)
    waits.until(lambda _chrome: "quarantine damage" in found(reader))


@pytest.mark.needs("chromium", "chromedriver")
def test_search_works_from_the_file_system(site: Path, tmp_path: Path) -> None:
    with driven(site.as_uri(), tmp_path / "profile") as reader:
        search(reader)
        assert reader.errors() == []


@pytest.mark.needs("chromium", "chromedriver")
def test_a_browser_asks_no_other_server(served: str, tmp_path: Path) -> None:
    with driven(served, tmp_path / "profile") as reader:
        search(reader)
        script = "return performance.getEntriesByType('resource').map(each => each.name)"
        loaded: list[str] = reader.chrome.execute_script(script)
        assert len(loaded) > 3
        assert [url for url in loaded if not url.startswith(served)] == []


def test_the_reference_has_every_metric_of_a_running_cluster(shared_cluster: Cluster) -> None:
    page = reference()["reference/metrics.md"]
    for program in (shared_cluster.gateway, shared_cluster.broker):
        for path in ("/metrics", "/metrics/detail"):
            _, _, text = get(str(program.ready["operations"]), path)
            for name in re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE):
                assert f"| `{name}` |" in page, name
