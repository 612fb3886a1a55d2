"""Several listeners of one gateway: each gives its clients its own address."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from quafka_proto.schema.cluster import DescribeClusterRequest, DescribeClusterResponse
from quafka_proto.schema.groups import FindCoordinatorRequest, FindCoordinatorResponse
from tests.support.admin_calls import describe_configs, resource
from tests.support.cluster import Cluster
from tests.support.kafka_calls import fetch, metadata, produce, values
from tests.support.prometheus import Scrape
from tests.support.raw_client import RawClient

BROKER = 4
LISTENERS = "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.2:0"
PROTOCOLS = "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    args = (
        *("--listener-security-protocol-map", PROTOCOLS, "--max-connections", "3"),
        *("--advertised-listeners", "OUTSIDE://kafka.example.org:443"),
    )
    folder = tmp_path_factory.mktemp("listeners")
    with Cluster(folder, gateway_args=args, listeners=LISTENERS) as cluster:
        yield cluster


@pytest.mark.parametrize("name", ["INSIDE", "OUTSIDE"])
def test_a_listeners_clients_get_its_address(cluster: Cluster, name: str) -> None:
    inside = cluster.address_of("INSIDE")
    expected = inside if name == "INSIDE" else ("kafka.example.org", 443)
    with RawClient(cluster.address_of(name)) as client:
        (broker,) = metadata(client, "t").brokers
        described = client.call(DescribeClusterRequest(), DescribeClusterResponse, 0)
        request = FindCoordinatorRequest(key="g")
        coordinator = client.call(request, FindCoordinatorResponse, 2)
        (configs,) = describe_configs(client, 4, resource(BROKER, "0"))
        produce(client, "t", name.encode())
    (one,) = described.brokers
    for each in (broker, one, coordinator):
        assert (each.host, each.port) == expected
    found = {each.name: each.value for each in configs.configs}
    both = f"INSIDE://{inside[0]}:{inside[1]}"
    assert found["listeners"] == f"{both},OUTSIDE://127.0.0.2:{cluster.address_of('OUTSIDE')[1]}"
    assert found["advertised.listeners"] == f"{both},OUTSIDE://kafka.example.org:443"
    assert found["listener.security.protocol.map"] == PROTOCOLS


def test_the_limits_count_the_connections_of_all_listeners(cluster: Cluster) -> None:
    inside, outside = (cluster.address_of(name) for name in ("INSIDE", "OUTSIDE"))
    with RawClient(inside) as one, RawClient(outside) as two, RawClient(inside) as three:
        for client in (one, two, three):
            metadata(client, "t")
        with RawClient(outside) as refused:
            assert refused.closed_by_peer()
        assert Scrape(cluster.gateway.ready["operations"])("quafka_gateway_connections") == 3


def test_the_reports_name_all_listeners(cluster: Cluster) -> None:
    ready = cluster.gateway.ready
    assert [part.split("://")[0] for part in ready["listeners"].split(",")] == ["INSIDE", "OUTSIDE"]
    with urllib.request.urlopen(f"http://{ready['operations']}/statusz") as answer:
        page = answer.read().decode()
    for listener in ready["advertised_listeners"].split(","):
        assert listener in page


@pytest.mark.long
def test_workers_share_every_listener(tmp_path: Path) -> None:
    args = ("--listener-security-protocol-map", PROTOCOLS, "--workers", "2")
    with Cluster(tmp_path, gateway_args=args, listeners=LISTENERS) as cluster:
        with RawClient(cluster.address_of("INSIDE")) as client:
            metadata(client, "t")
            produce(client, "t", b"here")
        for _ in range(4):
            with RawClient(cluster.address_of("OUTSIDE")) as client:
                assert values(fetch(client, "t", 0)) == [b"here"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (("--listeners", "IN://127.0.0.1:0"), "IN is not a security protocol"),
        (
            ("--listen", "127.0.0.1:0", "--listeners", "PLAINTEXT://127.0.0.1:0"),
            "listen and listeners are both set",
        ),
    ],
)
def test_settings_that_contradict_one_another_end_the_start(
    tmp_path: Path, args: tuple[str, ...], reason: str
) -> None:
    command = (sys.executable, "-m", "quafka", "gateway", "--mesh-peers", "127.0.0.1:1", *args)
    done = subprocess.run(
        command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=20
    )
    assert done.returncode == 1
    assert reason in done.stderr
