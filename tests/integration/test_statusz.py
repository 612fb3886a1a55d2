"""The status pages of a real gateway and broker, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.support.browser import Browser, corner
from tests.support.cluster import Cluster
from tests.support.kafka_calls import commit, create_topic, fetch, metadata, produce
from tests.support.prometheus import get
from tests.support.raw_client import RawClient

GROUP = "billing <script>document.title='oops'</script>"
TRACES = "http://localhost:16686/trace/{trace_id}"
LIGHT, DARK = "#f6f7f9", "#12161c"


class Page(HTMLParser):
    """A page's tables by their headings, its links, and what it would load."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.facts: dict[str, str] = {}
        self.links: list[str] = []
        self.loads: list[str] = []
        self.status = ""
        self._within = ""
        self._heading = ""
        self._name = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag == "a":
            self.links.append(named["href"] or "")
            return
        if "src" in named or tag in ("link", "script", "img", "iframe"):
            self.loads.append(tag)
        if tag in ("h2", "td", "th", "dt", "dd"):
            self._within = tag
            if tag == "h2":
                self._heading = ""
        if tag == "p" and named.get("role") == "status":
            self._within = "status"
        if tag == "tr":
            self.tables.setdefault(self._heading, []).append([])
        if tag in ("td", "th"):
            self.tables[self._heading][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("a", "strong"):
            self._within = ""

    def handle_data(self, data: str) -> None:
        if self._within == "h2":
            self._heading += data
        elif self._within == "status":
            self.status += data
        elif self._within in ("td", "th"):
            self.tables[self._heading][-1][-1] += data
        elif self._within == "dt":
            self._name = data
        elif self._within == "dd":
            self.facts[self._name] = data

    def table(self, heading: str) -> list[dict[str, str]]:
        """The rows of the table whose heading begins so, by column."""
        (rows,) = (rows for title, rows in self.tables.items() if title.startswith(heading))
        return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Everything is slow here, and traced; the collector is away."""
    args = ("--ops-slow-ms", "1", "--ops-trace-url", TRACES)
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_METRICS_EXPORTER": "none"}
    folder = tmp_path_factory.mktemp("statusz")
    with Cluster(folder, broker_args=args, gateway_args=args, env=env) as cluster:
        with RawClient(cluster.address) as client:
            metadata(client, "flights")
            create_topic(client, "orders", partitions=3)
            for _ in range(20):
                produce(client, "orders", b"a", b"b")
            fetch(client, "orders", 40, max_wait_ms=300)
            fetch(client, "orders", 99)
            commit(client, GROUP, "orders", 30)
        yield cluster


def test_the_gateways_page(used: Cluster, browser: Browser) -> None:
    page = Page(browser.dom(f"http://{used.gateway.ready['operations']}/statusz"))
    assert page.status == "ready"
    assert page.facts["advertised listeners"] == f"PLAINTEXT://{used.bootstrap}"
    (broker,) = page.table("Mesh")
    assert broker["peer"] == used.broker.ready["node_id"][:16]
    assert broker["state"] == "connected"
    requests = {row["API"]: row for row in page.table("Requests")}
    assert requests["Produce"]["answered"] == "20"
    assert requests["Fetch"]["with errors"] == "1"
    assert requests["Fetch"]["parked, each"].endswith(" ms")
    slow = page.table("Slow requests")
    assert {"Produce", "Fetch"} <= {row["API"] for row in slow}
    (failed,) = (row for row in slow if row["errors"])
    assert failed["errors"] == "OFFSET_OUT_OF_RANGE"
    traced = [row for row in slow if row["trace"]]  # not all: so many a second are sampled
    assert traced
    for link, row in zip(page.links, traced, strict=True):
        assert re.fullmatch(re.escape(TRACES).replace(r"\{trace_id\}", "[0-9a-f]{32}"), link)
        assert row["trace"] in link


@pytest.mark.long
def test_the_brokers_page(used: Cluster, browser: Browser) -> None:
    html = browser.dom(f"http://{used.broker.ready['operations']}/statusz")
    assert "<title>Quafka broker: ready</title>" in html  # no name has become a script
    page = Page(html)
    assert page.facts["state"] == "accepts writes"
    assert page.facts["segments"] == "1"
    topics = {row["topic"]: row for row in page.table("Topics: 2")}
    assert (topics["orders"]["partitions"], topics["orders"]["records"]) == ("3", "40")
    (group,) = page.table("Groups: 1")
    assert group["group"] == GROUP
    assert (group["state"], group["lag in records"]) == ("Empty", "10")
    assert group["lag in time"].endswith("days")  # the records say that they are of 1970
    peers = {row["peer"] for row in page.table("Mesh")}
    assert peers == {used.gateway.ready["node_id"][:16]}
    assert {"produce", "fetch"} <= {row["op"] for row in page.table("Ops of gateways")}
    slow = page.table("Slow ops")
    assert "produce" in {row["op"] for row in slow}
    assert any(row["trace"] for row in slow)  # not all: so many a second are sampled


@pytest.mark.long
def test_it_needs_nothing_but_itself_and_is_light_or_dark(
    used: Cluster, browser: Browser, tmp_path: Path
) -> None:
    url = f"http://{used.broker.ready['operations']}/statusz"
    _, kind, html = get(used.broker.ready["operations"], "/statusz")
    assert kind == "text/html; charset=utf-8"
    assert Page(html).loads == []
    assert "url(" not in html
    assert corner(browser.screenshot(url, tmp_path / "light.png")) == LIGHT
    dark = "--blink-settings=preferredColorScheme=0"
    assert corner(browser.screenshot(url, tmp_path / "dark.png", dark)) == DARK
