"""What probes are told while the broker comes and goes."""

from __future__ import annotations

import http.client
import json
import time
from pathlib import Path

from tests.support.cluster import Cluster, Process


def ready(process: Process) -> dict[str, str]:
    """The problems that /readyz names; the status must agree."""
    client = http.client.HTTPConnection(process.ready["operations"], timeout=5)
    client.request("GET", "/readyz")
    answer = client.getresponse()
    said = json.loads(answer.read())
    client.close()
    assert said["ready"] == (not said["problems"]) == (answer.status == 200)
    problems: dict[str, str] = said["problems"]
    return problems


def becomes(process: Process, names: set[str]) -> None:
    give_up = time.monotonic() + 5
    while ready(process).keys() != names:
        assert time.monotonic() < give_up, ready(process)
        time.sleep(0.02)


def test_a_gateway_is_ready_while_its_broker_is_there(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        assert ready(cluster.broker) == {}
        becomes(cluster.gateway, set())
        cluster.broker.kill()
        becomes(cluster.gateway, {"broker"})
        cluster.start_broker()
        becomes(cluster.gateway, set())
