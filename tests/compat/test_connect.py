"""Kafka Connect as it comes: distributed workers, whose state is in three compacted topics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.admin_calls import own_configs
from tests.support.cluster import Cluster
from tests.support.compacted import ALWAYS_DUE, EAGER, wait_for_pass
from tests.support.confluent import consume
from tests.support.connect import STATE, ask, connect_jars, worker
from tests.support.group_members import GROUPS
from tests.support.java import JAVA_TOOLS
from tests.support.kafka_calls import fetch, values
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.long


@pytest.fixture
def eager(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster that compacts at once."""
    args = (*GROUPS, *EAGER, *ALWAYS_DUE)
    (tmp_path / "cluster").mkdir()
    with Cluster(tmp_path / "cluster", broker_args=args) as running:
        yield running


@JAVA_TOOLS
@pytest.mark.needs(fetch=connect_jars)
def test_a_connector_goes_on_where_it_ended(eager: Cluster, tmp_path: Path) -> None:
    """Also with two other workers, which read the compacted topics from their beginning."""
    bootstrap = eager.bootstrap
    lines = tmp_path / "lines"
    lines.write_text("a\nb\n")
    config = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "file": str(lines),
        "topic": "lines",
    }
    with worker(tmp_path, bootstrap) as connectors:
        ask(connectors, {"name": "source", "config": config})
        assert [message.value() for message in consume(bootstrap, "lines", 2)] == [b"a", b"b"]
        ask(f"{connectors}/source/restart?includeTasks=true", {})
        with lines.open("a") as more:
            more.write("c\n")
        assert [message.value() for message in consume(bootstrap, "lines", 1, 2)] == [b"c"]
    with RawClient(eager.address) as client:
        for topic in STATE.values():
            assert own_configs(client, topic)["cleanup.policy"] == "compact"
    for topic in STATE.values():
        wait_for_pass(eager.address, topic)
    with worker(tmp_path / "1", bootstrap), worker(tmp_path / "2", bootstrap):
        with lines.open("a") as more:
            more.write("d\n")
        expected = [b"a", b"b", b"c", b"d"]
        assert [message.value() for message in consume(bootstrap, "lines", 4)] == expected
        with RawClient(eager.address) as client:
            assert values(fetch(client, "lines", 3)) == [b"d"]
