"""Share groups with Kafka's own tools: consumed, described, reset, deleted."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.cluster import Cluster
from tests.support.java import JAVA_TOOLS
from tests.support.java_tools import Outcome, Run, run_tools, tool

pytestmark = [pytest.mark.long, JAVA_TOOLS]
_TOPIC, _GROUP = "shared-by-tools", "share-tools"


def test_the_tools_of_share_groups(shared_cluster: Cluster) -> None:
    server = ("--bootstrap-server", shared_cluster.bootstrap)
    admin = AdminClient({"bootstrap.servers": shared_cluster.bootstrap})
    admin.create_topics([NewTopic(_TOPIC, 2)])[_TOPIC].result()
    producer = Producer({"bootstrap.servers": shared_cluster.bootstrap})
    for number in range(10):
        producer.produce(_TOPIC, f"v{number}", partition=number % 2)
    producer.flush()

    def configs(*arguments: str) -> Run:
        names = ("--entity-type", "groups", "--entity-name", _GROUP)
        return tool("ConfigCommand", *server, *names, *arguments)

    def shares(*arguments: str) -> Run:
        return tool("consumer.group.ShareGroupCommand", *server, *arguments)

    def consume() -> Run:
        names = ("--topic", _TOPIC, "--group", _GROUP, "--max-messages", "10")
        timeout = ("--timeout-ms", "60000")
        return tool("consumer.ConsoleShareConsumer", *server, *names, *timeout)

    of_group = ("--group", _GROUP)
    done = run_tools(
        {
            "features": tool("FeatureCommand", *server, "describe"),
            "set": configs("--alter", "--add-config", "share.auto.offset.reset=earliest"),
            "configs": configs("--describe"),
            "consumed": consume(),
            "listed": shares("--list", "--state"),
            "offsets": shares("--describe", *of_group),
            "state": shares("--describe", *of_group, "--state"),
            "reset": shares(
                "--reset-offsets", *of_group, "--topic", _TOPIC, "--to-earliest", "--execute"
            ),
            "consumed again": consume(),
            "types": tool("GroupsCommand", *server, "--list"),
            "forgotten": shares("--delete-offsets", *of_group, "--topic", _TOPIC),
            "no offsets": shares("--describe", *of_group),
            "deleted": shares("--delete", *of_group),
            "listed last": shares("--list"),
        }
    )
    assert {name: each.exit for name, each in done.items() if each.exit} == {}
    for feature in ("group.version", "share.version"):
        assert _fields(done["features"], feature)[-3:] == ["1", "Epoch:", "0"]
    assert "share.auto.offset.reset=earliest" in done["configs"].output
    values = sorted(f"v{number}" for number in range(10))
    for name in ("consumed", "consumed again"):
        assert sorted(line for line in done[name].lines if line.startswith("v")) == values
    assert _fields(done["listed"], _GROUP) == [_GROUP, "Empty"]
    rows = sorted(line.split() for line in done["offsets"].lines if line.startswith(_GROUP))
    assert rows == [[_GROUP, _TOPIC, str(number), "5", "0"] for number in range(2)]
    assert _fields(done["state"], _GROUP)[-2:] == ["Empty", "0"]
    assert _fields(done["types"], _GROUP) == [_GROUP, "Share", "share"]
    assert _fields(done["forgotten"], _TOPIC) == [_TOPIC, "Successful"]
    assert _TOPIC not in done["no offsets"].output
    assert _GROUP not in done["listed last"].output


def _fields(outcome: Outcome, word: str) -> list[str]:
    """The fields of the first line that has the word as one."""
    return next((line.split() for line in outcome.lines if word in line.split()), [outcome.output])
