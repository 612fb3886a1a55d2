"""`quafka cluster | shards | top | bench` against real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.cluster_commands import check_bench, check_cluster_commands
from tests.support.command import Command
from tests.support.store_cluster import StoreCluster

pytestmark = pytest.mark.long


def test_one_broker(shared_cluster: Cluster) -> None:
    quafka = Command(shared_cluster.bootstrap)
    check_bench(quafka, "bench-here")
    check_cluster_commands(quafka, "bench-here")
    found = quafka("cluster --format json").json
    (broker,) = found["brokers"]
    assert (broker["shard"], broker["state"]) == (None, "connected")
    assert found["gateway_version"] == broker["version"]
    (place,) = quafka("shards --format json").json["shards"]
    assert place["broker"] == broker["address"]
    assert quafka("top --interval 0.1 --format json").json["gateway"]["connections"] >= 1


def test_shards_of_two_brokers(tmp_path: Path) -> None:
    with StoreCluster(tmp_path) as cluster:
        quafka = Command(cluster.bootstrap())
        for name in "abcdefgh":
            quafka(f"topics create {name} -p 2")
        found = quafka("shards --format json").json["shards"]
        assert [each["shard"] for each in found] == [0, 1, 2, 3]
        assert sum(each["partitions"] for each in found) == 16
        assert "SHARD" in quafka("cluster").out
        cluster.kill("a")
        cluster.kill("b")
        view = quafka("cluster --format json").json
        assert not view["healthy"]
        assert any("away" in problem or "answer" in problem for problem in view["problems"])
        assert "cannot be reached" in quafka("shards").out
