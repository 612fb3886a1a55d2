"""Kafka's tools for groups in all their ways, the verifiable clients, and ConsumerPerformance."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from tests.support.cluster import Cluster
from tests.support.group_members import PARTITIONS, fill, member, owned, read, until
from tests.support.java import JAVA_TOOLS, java_class, kafka_tools, run_java

pytestmark = [pytest.mark.long, JAVA_TOOLS]
FOLDER = Path(__file__).with_name("java")
TOPIC, COUNT = "of-group-tools", 40
EACH = COUNT // PARTITIONS
GROUPS = "consumer.group.ConsumerGroupCommand"
RESETS: dict[str, tuple[tuple[str, ...], int]] = {
    "earliest": (("--to-earliest",), 0),
    "offset": (("--to-offset", "4"), 4),
    "current": (("--to-current",), 4),
    "back": (("--shift-by", "-3"), 1),
    "forward": (("--shift-by", "2"), 3),
    "latest": (("--to-latest",), EACH),
    "datetime": (("--to-datetime", "2001-02-03T04:05:06.789"), 0),
    "duration": (("--by-duration", "PT0S"), EACH),
}
"""How to reset a group's offsets, in this order, and where each partition is then."""


def tool(name: str, *arguments: str) -> dict[str, Any]:
    return {"tool": f"org.apache.kafka.tools.{name}", "arguments": arguments, "input": ""}


@pytest.fixture(scope="module")
def stable(group_cluster: Cluster) -> Iterator[Consumer]:
    """The group "stable" with one member that has read all."""
    fill(group_cluster, TOPIC, COUNT)
    settings = {"client.id": "me", "session.timeout.ms": 60_000}
    consumer = member(group_cluster, "stable", TOPIC, settings)
    until(lambda: len(owned(consumer)) == PARTITIONS, consumer)
    read(consumer, COUNT)
    consumer.commit(asynchronous=False)
    yield consumer
    consumer.close()


@pytest.fixture(scope="module")
def output(
    group_cluster: Cluster, stable: Consumer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """What each tool said, one after the other."""
    at = ("--bootstrap-server", group_cluster.bootstrap)
    reset = (GROUPS, *at, "--group", "reset", "--reset-offsets")
    plan = tmp_path_factory.mktemp("plan") / "plan.csv"
    plan.write_text("".join(f"{TOPIC},{partition},2\n" for partition in range(PARTITIONS)))
    runs = {
        "list": tool(GROUPS, *at, "--list"),
        "list states": tool(GROUPS, *at, "--list", "--state"),
        "list stable": tool(GROUPS, *at, "--list", "--state", "stable", "--type", "classic"),
        "offsets": tool(GROUPS, *at, "--describe", "--group", "stable", "--offsets"),
        "members": tool(GROUPS, *at, "--describe", "--group", "stable", "--members", "--verbose"),
        "state": tool(GROUPS, *at, "--describe", "--group", "stable", "--state", "--verbose"),
        "all groups": tool(GROUPS, *at, "--describe", "--all-groups", "--state"),
        "refused": tool(
            GROUPS, *at, "--group", "stable", "--topic", TOPIC, "--reset-offsets",
            "--to-earliest", "--execute",
        ),
        "in use": tool(GROUPS, *at, "--group", "stable", "--topic", TOPIC, "--delete-offsets"),
        "not empty": tool(GROUPS, *at, "--group", "stable", "--delete"),
        "verified": tool(
            "VerifiableConsumer", *at, "--topic", TOPIC, "--group-id", "reset",
            "--max-messages", str(COUNT), "--reset-policy", "earliest",
        ),
        "planned": tool(*reset, "--topic", f"{TOPIC}:0,2", "--to-earliest", "--dry-run"),
        "file": tool(*reset, "--from-file", str(plan), "--execute"),
        **{
            name: tool(*reset, "--topic", TOPIC, *how, "--execute")
            for name, (how, _) in RESETS.items()
        },
        "exported": tool(*reset, "--all-topics", "--to-earliest", "--dry-run", "--export"),
        "deleted offsets": tool(
            GROUPS, *at, "--group", "reset", "--topic", f"{TOPIC}:1", "--delete-offsets"
        ),
        "left": tool(GROUPS, *at, "--describe", "--group", "reset"),
        "deleted": tool(GROUPS, *at, "--group", "reset", "--delete"),
        "gone": tool(GROUPS, *at, "--describe", "--group", "reset"),
        "measured": tool(
            "ConsumerPerformance", *at, "--topic", "verified", "--num-records", "500",
            "--group", "measured", "--timeout", "20000",
        ),
    }  # fmt: skip
    jars = kafka_tools()
    # It ends in a hook of the virtual machine's own end.
    sender = "org.apache.kafka.tools.VerifiableProducer"
    command = [*java_class(sender, jars), *at, "--topic", "verified", "--max-messages", "500"]
    sent = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    answers = json.loads(run_java(FOLDER / "Tools.java", jars, json.dumps([*runs.values()])))
    said = {name: answer["output"] for name, answer in zip(runs, answers, strict=True)}
    return {**said, "sent": sent.stdout}


def events(text: str, name: str) -> list[dict[str, Any]]:
    """What a verifiable client said of this kind."""
    found = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [event for event in found if event["name"] == name]


def test_groups_are_listed_and_described(output: dict[str, str]) -> None:
    assert "stable" in output["list"].split()
    assert re.search(r"^stable +Stable", output["list states"], re.MULTILINE)
    assert re.search(r"^stable +Classic +Stable", output["list stable"], re.MULTILINE)
    rows = re.findall(rf"^stable +{TOPIC} +(\d) +(\d+) +(\d+) +(\d+) +me-", output["offsets"], re.M)
    assert sorted(rows) == [(str(p), str(EACH), str(EACH), "0") for p in range(PARTITIONS)]
    partitions = ",".join(map(str, range(PARTITIONS)))
    (members,) = re.findall(r"^stable +me-.*", output["members"], re.MULTILINE)
    assert f" {PARTITIONS} " in members
    assert f" {TOPIC}:{partitions} " in members
    assert re.search(r"^stable .* range +Stable .*1 *$", output["state"], re.MULTILINE)
    assert re.search(r"^stable .* Stable ", output["all groups"], re.MULTILINE)


def test_a_group_with_members_is_left_alone(output: dict[str, str]) -> None:
    assert "Assignments can only be reset if the group 'stable' is inactive" in output["refused"]
    assert "GroupSubscribedToTopicException" in output["in use"]
    assert "GroupNotEmptyException" in output["not empty"]


def test_offsets_are_reset_in_every_way(output: dict[str, str]) -> None:
    planned = re.findall(rf"^reset +{TOPIC} +(\d) +(\d+)", output["planned"], re.MULTILINE)
    assert sorted(planned) == [("0", "0"), ("2", "0")]
    for name, wanted in {"file": 2, **{name: to for name, (_, to) in RESETS.items()}}.items():
        rows = re.findall(rf"^reset +{TOPIC} +(\d) +(\d+)", output[name], re.MULTILINE)
        assert sorted(rows) == [(str(p), str(wanted)) for p in range(PARTITIONS)], output[name]
    assert sorted(output["exported"].split()) == [f"{TOPIC},{p},0" for p in range(PARTITIONS)]


def test_offsets_and_groups_are_deleted(output: dict[str, str]) -> None:
    assert re.search(rf"^{TOPIC} +1 +Successful", output["deleted offsets"], re.MULTILINE)
    left = re.findall(rf"^reset +{TOPIC} +(\d) +(\S+) ", output["left"], re.MULTILINE)
    assert sorted(left) == [("0", "10"), ("2", "10"), ("3", "10")]
    assert "was successful" in output["deleted"]
    assert "GroupIdNotFoundException" in output["gone"]


def test_verifiable_clients(output: dict[str, str]) -> None:
    consumed = events(output["verified"], "records_consumed")
    assert sum(event["count"] for event in consumed) == COUNT
    assert events(output["verified"], "offsets_committed")[-1]["success"]
    assert len(events(output["sent"], "producer_send_success")) == 500
    assert not events(output["sent"], "producer_send_error")


def test_consumer_performance(output: dict[str, str]) -> None:
    *_, figures = [line for line in output["measured"].splitlines() if line[:4] == "2026"]
    assert int(figures.split(", ")[4]) == 500
