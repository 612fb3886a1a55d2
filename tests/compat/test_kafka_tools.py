"""Kafka's own command line tools, as they are: one virtual machine runs them one after another."""

from __future__ import annotations

import pytest

from tests.support.cluster import Cluster
from tests.support.java import JAVA_TOOLS
from tests.support.java_tools import run_tools, tool

TOPIC = "of-kafka-tools"
COUNT = 20_000
LINES = "h:1\tk0\tv0\nh:1,i:2\tk1\tNULL\nNULL\tk2\tv2 \u00e9\n"


pytestmark = JAVA_TOOLS


@pytest.fixture(scope="module")
def output(shared_cluster: Cluster) -> dict[str, list[str]]:
    """What each tool printed."""
    at = ["--bootstrap-server", shared_cluster.bootstrap]
    on = ["--topic", TOPIC]
    reader = [f"parse.{name}=true" for name in ("key", "headers")] + ["null.marker=NULL"]
    printer = [f"print.{name}=true" for name in ("key", "headers", "offset", "partition")]
    console = [*at, *on, "--partition", "0", "--max-messages", "2", "--timeout-ms", "20000"]
    runs = {
        "create": tool("TopicCommand", *at, *on, "--create", "--partitions", "1"),
        "list": tool("TopicCommand", *at, "--list"),
        "produce": tool(
            "ConsoleProducer",
            *at,
            *on,
            "--compression-codec=zstd",
            *(word for each in reader for word in ("--reader-property", each)),
            text=LINES,
        ),
        "perf": tool(
            "ProducerPerformance",
            *("--topic", "of-perf", "--num-records", str(COUNT), "--record-size", "100"),
            *("--throughput", "-1", "--bootstrap-server", shared_cluster.bootstrap),
        ),
        "offsets": tool("GetOffsetShell", *at, "--topic-partitions", f"{TOPIC},of-perf"),
        "consume": tool(
            "consumer.ConsoleConsumer",
            *(*console, "--offset", "1"),
            *(word for each in printer for word in ("--formatter-property", each)),
        ),
        "delete": tool("TopicCommand", *at, *on, "--delete"),
        "list again": tool("TopicCommand", *at, "--list"),
    }
    outcomes = run_tools(runs)
    for name, outcome in outcomes.items():
        assert outcome.exit == 0, f"{name}: {outcome.output}"
    return {name: outcome.lines for name, outcome in outcomes.items()}


def test_topics_are_created_listed_and_deleted(output: dict[str, list[str]]) -> None:
    assert f"Created topic {TOPIC}." in output["create"]
    assert TOPIC in output["list"]
    assert TOPIC not in output["list again"]
    assert "of-perf" in output["list again"]


def test_console_consumer_prints_what_console_producer_sent(output: dict[str, list[str]]) -> None:
    assert [line for line in output["consume"] if line.startswith("Partition:")] == [
        "Partition:0\tOffset:1\th:1,i:2\tk1\tnull",
        "Partition:0\tOffset:2\tNO_HEADERS\tk2\tv2 \u00e9",
    ]
    assert "Processed a total of 2 messages" in output["consume"]


def test_producer_performance(output: dict[str, list[str]]) -> None:
    assert output["perf"][-1].startswith(f"{COUNT} records sent, ")


def test_get_offset_shell(output: dict[str, list[str]]) -> None:
    assert output["offsets"] == [f"{TOPIC}:0:3", f"of-perf:0:{COUNT}"]
