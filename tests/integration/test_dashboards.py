"""What is shipped for Prometheus and Grafana, judged by their own tools and by real numbers."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.support.cluster import Cluster
from tests.support.kafka_calls import commit, create_topic, fetch, produce
from tests.support.needs import program
from tests.support.prometheus_server import SHIPPED, PrometheusServer
from tests.support.raw_client import RawClient

DASHBOARD = SHIPPED.parent / "grafana" / "dashboards" / "quafka.json"
NOTHING_WHERE_ALL_IS_WELL = (
    "errors_total", "refused_total", "parked_seconds", "throttled_seconds",
)  # fmt: skip


def dashboard() -> Any:
    return json.loads(DASHBOARD.read_text())


def expressions() -> Iterator[tuple[str, str]]:
    """Every panel's title and PromQL, its variables replaced as Grafana would."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            query = target["expr"].replace("$__rate_interval", "1m")
            yield panel["title"], query.replace("$gateway", ".*").replace("$broker", ".*")


@pytest.mark.long
@pytest.mark.parametrize(
    "arguments",
    [("check", "config", "prometheus.yml"), ("check", "rules", "alerts.yml"),
     ("test", "rules", "alerts_test.yml")],
    ids=" ".join,
)  # fmt: skip
@pytest.mark.needs("promtool")
def test_promtool_agrees(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        [program("promtool"), *arguments], cwd=SHIPPED, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_test() -> None:
    tested = (SHIPPED / "alerts_test.yml").read_text()
    names = [
        line.split()[-1]
        for line in (SHIPPED / "alerts.yml").read_text().splitlines()
        if "- alert:" in line
    ]
    assert len(names) > 10
    for name in names:
        # With an alert that fires; one that does not would also hold for a rule that never does.
        assert f"alertname: {name}\n" in tested, f"{name} is never expected to fire"


def test_grafanas_own_types_know_everything_in_the_dashboard() -> None:
    register_default_plugins()
    source = dashboard()
    understood = json.loads(JSONEncoder().encode(Dashboard.from_json(source)))
    assert missing(source, understood) == []
    ids = [panel["id"] for panel in source["panels"]]
    assert len(set(ids)) == len(ids)


def missing(source: Any, understood: Any, path: str = "") -> list[str]:
    """Where something of the source is not in what was understood of it."""
    if isinstance(source, dict):
        gone = [f"{path}.{key}" for key in source if key not in understood]
        both = [key for key in source if key in understood]
        return gone + [m for k in both for m in missing(source[k], understood[k], f"{path}.{k}")]
    if isinstance(source, list):
        if len(source) != len(understood):
            return [path]
        pairs = enumerate(zip(source, understood, strict=True))
        return [m for i, (s, u) in pairs for m in missing(s, u, f"{path}[{i}]")]
    return [] if source == understood else [path]


def test_no_panel_lies_on_another() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in dashboard()["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert (x, y) not in taken, f"{panel['title']} lies on {taken[x, y]}"
                taken[x, y] = panel["title"]


@pytest.mark.long
@pytest.mark.needs("prometheus")
def test_a_real_prometheus_has_an_answer_for_every_panel_and_every_rule(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster, PrometheusServer(tmp_path, cluster) as prometheus:
        with RawClient(cluster.address) as client:
            create_topic(client, "orders", partitions=2)
            produce(client, "orders", b"first")
            commit(client, "billing", "orders", 0)

            def use() -> None:
                end = produce(client, "orders", b"a")
                fetch(client, "orders", end + 1)

            # A rate needs two scrapes, and something between them.
            for what in (
                "quafka_wal_commits_total", "quafka_gateway_fetch_polls_total",
                'quafka_broker_ops_total{op="fetch"}', "kafka_topic_partition_current_offset",
            ):  # fmt: skip
                prometheus.wait_for(f"sum(rate({what}[1m])) > 0", use)
            prometheus.wait_for('sum(kafka_consumergroup_lag{consumergroup="billing"}) > 0')
        shown = list(expressions())
        assert len(shown) > 30
        for title, query in shown:
            found = prometheus.query(query)  # raises where it cannot be understood
            may_be_none = any(name in query for name in NOTHING_WHERE_ALL_IS_WELL)
            assert found or may_be_none, f"{title} shows nothing: {query}"
        prometheus.wait_for("count(up == 1) == 3")
        rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
        assert [rule["name"] for rule in rules if rule["health"] != "ok"] == []
        assert [rule["name"] for rule in rules if rule["state"] == "firing"] == []
