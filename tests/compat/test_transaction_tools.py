"""kafka-transactions, every subcommand, on transactions that producers left open."""

from __future__ import annotations

import re

import pytest
from confluent_kafka import Producer

from tests.support.cluster import Cluster
from tests.support.java import JAVA_TOOLS
from tests.support.java_tools import Outcome, run_tools, tool
from tests.support.kafka_calls import create_topic
from tests.support.raw_client import RawClient
from tests.support.transactions import read

pytestmark = [pytest.mark.long, JAVA_TOOLS]
TOPIC = "of-transaction-tools"
ABORTED, FENCED = "tools.aborted", "tools-fenced"
_SECONDS = 20.0


def begun(cluster: Cluster, name: str, partition: int) -> Producer:
    """A producer with an open transaction."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": name})
    producer.init_transactions(_SECONDS)
    producer.begin_transaction()
    producer.produce(TOPIC, name, partition=partition)
    assert producer.flush(_SECONDS) == 0
    return producer


@pytest.fixture(scope="module")
def said(shared_cluster: Cluster) -> dict[str, Outcome]:
    with RawClient(shared_cluster.address) as client:
        create_topic(client, TOPIC, 2)
    producers = [begun(shared_cluster, ABORTED, 0), begun(shared_cluster, FENCED, 1)]
    base = ["TransactionsCommand", "--bootstrap-server", shared_cluster.bootstrap]
    here = ["--topic", TOPIC, "--partition"]
    pattern = ["list", "--transactional-id-pattern", "tools.(abo.*|none)"]
    found = run_tools(
        {
            "list": tool(*base, "list"),
            "pattern": tool(*base, *pattern),
            "no pattern": tool(*base, "list", "--transactional-id-pattern", "(?=a)"),
            "long": tool(*base, "list", "--duration-filter", "3600000"),
            "describe": tool(*base, "describe", "--transactional-id", ABORTED),
            "producers": tool(*base, "describe-producers", *here, "0"),
            "hanging": tool(
                *base, "find-hanging", "--topic", TOPIC, "--max-transaction-timeout", "0"
            ),
            "abort": tool(*base, "abort", *here, "0", "--start-offset", "0"),
            "fence": tool(*base, "forceTerminateTransaction", "--transactionalId", FENCED),
            "after": tool(*base, "list"),
            "producers after": tool(*base, "describe-producers", *here, "0"),
        }
    )
    del producers
    return found


def states(outcome: Outcome) -> dict[str, str]:
    """The state of each of this test's transactional ids."""
    rows = (line.split() for line in outcome.lines if line.startswith("tools"))
    return {row[0]: row[3] for row in rows}


def test_list(said: dict[str, Outcome]) -> None:
    assert states(said["list"]) == {ABORTED: "Ongoing", FENCED: "Ongoing"}
    assert states(said["pattern"]) == {ABORTED: "Ongoing"}
    assert states(said["long"]) == {}
    assert said["no pattern"].exit == 1


def test_describe(said: dict[str, Outcome]) -> None:
    (line,) = [line for line in said["describe"].lines if ABORTED in line]
    assert "Ongoing" in line
    assert f"{TOPIC}-0" in line
    header, row = said["producers"].lines[-2:]
    assert header.split()[-1] == "CurrentTransactionStartOffset"
    assert row.split()[-1] == "0"


def test_nothing_hangs_that_its_coordinator_knows(said: dict[str, Outcome]) -> None:
    assert said["hanging"].exit == 0
    assert not re.search(rf"^{TOPIC}", said["hanging"].output, re.MULTILINE)


def test_abort_and_force_terminate(said: dict[str, Outcome], shared_cluster: Cluster) -> None:
    assert said["abort"].exit == said["fence"].exit == 0, said["abort"].output
    after = states(said["after"])
    assert after[ABORTED] == "CompleteAbort"
    assert after[FENCED] != "Ongoing"
    assert said["producers after"].lines[-1].split()[-1] == "None"
    assert read(shared_cluster.bootstrap, TOPIC, "read_committed") == []
