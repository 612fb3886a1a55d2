"""`quafka topics copy | cluster | shards | top | bench` on Apache Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.apache_kafka import apache_kafka
from tests.support.cluster import Cluster
from tests.support.cluster_commands import check_bench, check_cluster_commands
from tests.support.command import Command
from tests.support.copied_topics import check_copies
from tests.support.java import JAVA_TOOLS

pytestmark = [pytest.mark.long, JAVA_TOOLS]


def test_copies_from_kafka_and_back_and_views_of_it(group_cluster: Cluster, tmp_path: Path) -> None:
    # Kafka keeps 2023's records of the test only without a limit of time.
    with apache_kafka(tmp_path, log_retention_ms="-1") as kafka:
        quafka = Command(kafka.bootstrap, timeout=30.0)
        check_bench(quafka, "bench-kafka")
        check_cluster_commands(quafka, "bench-kafka")
        found = quafka("cluster --format json").json
        assert (found["gateway_version"], found["brokers"]) == (None, [])
        (place,) = quafka("shards --format json").json["shards"]
        assert place["place"] == str(kafka.log_dirs[0])
        check_copies(kafka.bootstrap, group_cluster.bootstrap, "from-kafka")
        check_copies(group_cluster.bootstrap, kafka.bootstrap, "to-kafka")
        exported = tmp_path / "offsets.csv"
        exported.write_text(quafka("groups export g-to-kafka").out)
        moved = quafka(f"groups reset-offsets g-to-kafka --from-file {exported} --dry-run")
        assert {tuple(row[-2:]) for row in moved.rows} == {("0", "0")}
