"""What is shipped for Prometheus and Grafana, judged by their own tools and by real numbers."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.support.cluster import Cluster
from tests.support.command import Command
from tests.support.kafka_calls import commit, create_topic, fetch, produce
from tests.support.needs import program
from tests.support.prometheus_server import SHIPPED, PrometheusServer
from tests.support.raw_client import RawClient

DASHBOARDS = sorted((SHIPPED.parent / "grafana" / "dashboards").glob("*.json"))
NOTHING_WHERE_ALL_IS_WELL = (
    "errors_total", "refused_total", "parked_seconds", "throttled_seconds",
)  # fmt: skip
OF_STORES = ("quafka_store_", "quafka_shards", "quafka_cluster_")
"""The names of metrics that only a broker with its log in an object store has begin with these."""
_VARIABLE = re.compile(r"\$(?:gateway|broker|org)\b")

every_dashboard = pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)


def expressions() -> Iterator[tuple[str, str]]:
    """Every panel's title and PromQL, its variables replaced as Grafana would."""
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", ()):
                query = target["expr"].replace("$__rate_interval", "1m")
                yield f"{path.stem}: {panel['title']}", _VARIABLE.sub(".*", query)


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


@every_dashboard
def test_grafanas_own_types_know_everything_in_the_dashboard(path: Path) -> None:
    register_default_plugins()
    source = json.loads(path.read_text())
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


def test_dashboards_have_names_of_their_own() -> None:
    found = [json.loads(path.read_text()) for path in DASHBOARDS]
    assert {each["title"] for each in found} == {"Quafka", "Quafka: orgs"}
    assert len({each["uid"] for each in found}) == len(found)


@every_dashboard
def test_variables_of_queries_are_declared(path: Path) -> None:
    source = json.loads(path.read_text())
    declared = {each["name"] for each in source["templating"]["list"]}
    used = {
        name
        for panel in source["panels"]
        for target in panel.get("targets", ())
        for name in re.findall(r"\$(\w+)", target["expr"])
    }
    assert used - {"__rate_interval"} <= declared


@every_dashboard
def test_no_panel_lies_on_another(path: Path) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in json.loads(path.read_text())["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert (x, y) not in taken, f"{panel['title']} lies on {taken[x, y]}"
                taken[x, y] = panel["title"]


@pytest.mark.long
@pytest.mark.needs("prometheus")
@pytest.mark.parametrize("in_store", [False, True], ids=["disk", "store"])
def test_a_real_prometheus_has_an_answer_for_every_panel_and_every_rule(
    tmp_path: Path, in_store: bool
) -> None:
    snapshots = ("--snapshot-interval-ms", "1h", "--snapshot-dest", str(tmp_path / "snapshots"))
    store = f"file://{tmp_path / 'store'}"
    cluster = Cluster(tmp_path, () if in_store else snapshots, store=store if in_store else "")
    with cluster, PrometheusServer(tmp_path, cluster) as prometheus:
        Command(cluster.bootstrap)("topics create cars -c cleanup.policy=compact")
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
            prometheus.wait_for("count(quafka_compaction_age_seconds) > 0")
        shown = list(expressions())
        assert len(shown) > 30
        for title, query in shown:
            if in_store != any(name in query for name in OF_STORES):
                continue
            found = prometheus.query(query)  # raises where it cannot be understood
            may_be_none = any(name in query for name in NOTHING_WHERE_ALL_IS_WELL)
            assert found or may_be_none, f"{title} shows nothing: {query}"
        prometheus.wait_for("count(up == 1) == 3")
        rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
        assert [rule["name"] for rule in rules if rule["health"] != "ok"] == []
        assert [rule["name"] for rule in rules if rule["state"] == "firing"] == []
