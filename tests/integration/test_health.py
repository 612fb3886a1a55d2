"""What probes are told while the broker comes and goes."""

from __future__ import annotations

import http.client
import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import Cluster, Process
from tests.support.kafka_calls import VERSION, metadata, produce_request
from tests.support.prometheus import Scrape
from tests.support.raw_client import RawClient


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
    give_up = time.monotonic() + 30
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


@pytest.mark.long
def test_the_mesh_page_shows_both_ends(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        becomes(cluster.gateway, set())
        (broker,), gateways = peers(cluster.gateway), peers(cluster.broker)
        assert broker["peer"] == cluster.broker.ready["node_id"]
        # One that is given a store has a connection more, by which it follows the cluster.
        assert {each["peer"] for each in gateways} == {cluster.gateway.ready["node_id"]}
        assert broker["address"] == cluster.broker.ready["mesh"]
        for peer in (broker, *gateways):
            assert peer["connected"] is True
            assert peer["transport"]["rtt_us"] > 0
            assert peer["transport"]["bytes_received"] > 0
        cluster.broker.kill()
        becomes(cluster.gateway, {"broker"})
        (broker,) = peers(cluster.gateway)
        assert (broker["connected"], broker["transport"]) == (False, None)


def peers(process: Process) -> list[dict[str, Any]]:
    """What /mesh shows."""
    client = http.client.HTTPConnection(process.ready["operations"], timeout=5)
    client.request("GET", "/mesh")
    answer = client.getresponse()
    assert answer.status == 200
    found: list[dict[str, Any]] = json.loads(answer.read())["peers"]
    client.close()
    return found


@pytest.mark.long
def test_neither_is_ready_while_it_drains(tmp_path: Path) -> None:
    """The other one is frozen, so that there is something to wait for."""
    with Cluster(tmp_path) as cluster, RawClient(cluster.address) as client:
        becomes(cluster.gateway, set())
        metadata(client, "t")
        cluster.broker.popen.send_signal(signal.SIGSTOP)
        client.send(produce_request("t", b"record"), VERSION["produce"])
        until_received(cluster.gateway)
        cluster.gateway.popen.send_signal(signal.SIGTERM)
        becomes(cluster.gateway, {"gateway"})
        assert ready(cluster.gateway)["gateway"] == "draining"
        cluster.broker.popen.send_signal(signal.SIGCONT)
        assert cluster.gateway.popen.wait(10) == 0

        cluster.start_gateway()
        becomes(cluster.gateway, set())
        cluster.gateway.popen.send_signal(signal.SIGSTOP)
        cluster.broker.popen.send_signal(signal.SIGTERM)
        becomes(cluster.broker, {"broker"})
        assert ready(cluster.broker)["broker"] == "draining"
        assert cluster.broker.popen.wait(10) == 0
        cluster.gateway.popen.send_signal(signal.SIGCONT)


def until_received(process: Process) -> None:
    """Until the gateway has begun to serve a request that it cannot answer."""
    give_up = time.monotonic() + 30
    while not Scrape(process.ready["operations"])("quafka_gateway_request_memory_bytes"):
        assert time.monotonic() < give_up
        time.sleep(0.02)
