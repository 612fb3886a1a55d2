"""A log in an object store, as its operator sees it: requests, bytes and dollars."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.test_statusz import Page
from tests.support.cluster import Cluster
from tests.support.kafka_calls import create_topic, produce
from tests.support.prometheus import get
from tests.support.raw_client import RawClient


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    folder = tmp_path_factory.mktemp("store")
    return Cluster(folder, ("--store-prices", "put=10"), store=f"file://{folder / 'store'}")


def test_requests_bytes_and_costs(cluster: Cluster) -> None:
    with cluster, RawClient(cluster.address) as client:
        create_topic(client, "t")
        for _ in range(5):
            produce(client, "t", b"x")
        address = cluster.broker.ready["operations"]
        metrics = get(address, "/metrics")[2]
        found = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if line[:1] != "#")
        assert int(found['quafka_store_requests_total{kind="create"}']) > 100 + 5, "the race, too"
        assert float(found['quafka_store_dollars_month{part="requests"}']) > 0
        page = Page(get(address, "/statusz")[2])
        assert page.facts["store"] == cluster.store
        assert page.facts["requests since the start"].startswith("$")
        kinds = [row[0] for row in page.tables["Requests to the object store"]]
        assert {"create", "get", "list"} <= set(kinds)
    assert list(Path(cluster.store.removeprefix("file://")).glob("check/*/*")) == []
