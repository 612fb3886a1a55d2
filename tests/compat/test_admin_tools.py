"""Kafka's own administration tools, as they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.cluster import Cluster
from tests.support.java import JAVA_TOOLS, kafka_tools, run_java
from tests.support.java_tools import FOLDER as JAVA
from tests.support.java_tools import Outcome, Run, run_tools, tool
from tests.support.kafka_calls import create_topic, produce
from tests.support.raw_client import RawClient

pytestmark = [pytest.mark.long, JAVA_TOOLS]
TOPIC = "of-admins"
CONFIGS = "ConfigCommand"
REFUSED = {"elsewhere", "shrink", "keep", "alter broker", "acls", "downgrade", "unregister"}


def runs(cluster: Cluster, folder: Path) -> dict[str, Run]:
    at = ["--bootstrap-server", cluster.bootstrap]
    on = [*at, "--topic", TOPIC]
    other = [*at, "--topic", f"{TOPIC}-by-hand"]
    size = "log.retention.bytes"
    everywhere = [*at, "--entity-type", "brokers", "--entity-default"]
    topic = [*at, "--entity-type", "topics", "--entity-name", TOPIC]
    broker = [*at, "--entity-type", "brokers", "--entity-name", "0"]
    partition = {"topic": TOPIC, "partition": 0}

    def file(name: str, **contents: object) -> str:
        path = folder / name
        path.write_text(json.dumps({"version": 1, **contents}))
        return str(path)

    moves = file("moves", partitions=[{**partition, "replicas": [0]}])
    deletes = file("deletes", partitions=[{**partition, "offset": 1}])
    replicas = "reassign.ReassignPartitionsCommand"
    found = {
        "create": tool("TopicCommand", *on, "--create", "--partitions", "1"),
        "produce": tool("ConsoleProducer", *on, text="a\nb\nc\n"),
        "elsewhere": tool("TopicCommand", *other, "--create", "--replica-assignment", "0,1"),
        "by hand": tool("TopicCommand", *other, "--create", "--replica-assignment", "0,0"),
        "by hand gone": tool("TopicCommand", *other, "--delete"),
        "grow": tool("TopicCommand", *on, "--alter", "--partitions", "3"),
        "shrink": tool("TopicCommand", *on, "--alter", "--partitions", "2"),
        "set": tool(CONFIGS, *topic, "--alter", "--add-config", "retention.ms=99999,segment.ms=9"),
        "unset": tool(CONFIGS, *topic, "--alter", "--delete-config", "segment.ms"),
        "compact": tool(CONFIGS, *topic, "--alter", "--add-config", "cleanup.policy=compact"),
        "keep": tool(CONFIGS, *topic, "--alter", "--add-config", "cleanup.policy=keep"),
        "not compact": tool(CONFIGS, *topic, "--alter", "--delete-config", "cleanup.policy"),
        "configs": tool(CONFIGS, *topic, "--describe"),
        "all configs": tool(CONFIGS, *topic, "--describe", "--all"),
        "broker": tool(CONFIGS, *broker, "--describe", "--all"),
        "alter broker": tool(CONFIGS, *broker, "--alter", "--add-config", "num.partitions=3"),
        "default": tool(CONFIGS, *everywhere, "--alter", "--add-config", f"{size}=9999"),
        "defaults": tool(CONFIGS, *everywhere, "--describe"),
        "no default": tool(CONFIGS, *everywhere, "--alter", "--delete-config", size),
        "loggers": tool(
            CONFIGS, *at, "--entity-type", "broker-loggers", "--entity-name", "0", "--describe"
        ),
        "describe": tool("TopicCommand", *at, "--describe"),
        "overrides": tool("TopicCommand", *at, "--describe", "--topics-with-overrides"),
        "producers": tool("TransactionsCommand", *at, "describe-producers", *on[2:], "--partition",
                          "0"),
        "dirs": tool("LogDirsCommand", *at, "--describe"),
        "elect": tool("LeaderElectionCommand", *on, "--election-type", "preferred", "--partition",
                      "0"),
        "moving": tool(replicas, *at, "--list"),
        "move": tool(replicas, *at, "--execute", "--reassignment-json-file", moves, "--throttle",
                     "1000"),
        "moved": tool(replicas, *at, "--verify", "--reassignment-json-file", moves),
        "delete records": tool("DeleteRecordsCommand", *at, "--offset-json-file", deletes),
        "starts": tool("GetOffsetShell", *on, "--time", "-2"),
        "ends": tool("GetOffsetShell", *on),
        "id": tool("ClusterTool", "cluster-id", *at),
        "endpoints": tool("ClusterTool", "list-endpoints", *at),
        "versions": tool("BrokerApiVersionsCommand", *at),
        "quorum": tool("MetadataQuorumCommand", *at, "describe", "--status"),
        "replication": tool("MetadataQuorumCommand", *at, "describe", "--replication"),
        "acls": tool("AclCommand", *at, "--list"),
        "transactions": tool("TransactionsCommand", *at, "list"),
        "transact": tool("ProducerPerformance", *at, "--topic", TOPIC, "--num-records", "1",
                         "--record-size", "9", "--throughput", "-1", "--transactional-id", "x"),
        "features": tool("FeatureCommand", *at, "describe"),
        "unregister": tool("ClusterTool", "unregister", *at, "--id", "77"),
        "downgrade": tool("FeatureCommand", *at, "downgrade", "--feature", "transaction.version=1"),
    }  # fmt: skip
    for kind in ("topics", "brokers", "users", "clients", "ips", "client-metrics", "groups"):
        found[f"all {kind}"] = tool(CONFIGS, *at, "--entity-type", kind, "--describe")
    return {**found, "delete": tool("TopicCommand", *on, "--delete")}


@pytest.fixture(scope="module")
def said(shared_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """What each tool said."""
    return run_tools(runs(shared_cluster, tmp_path_factory.mktemp("admins")))


def test_tools_fail_only_where_something_is_refused(said: dict[str, Outcome]) -> None:
    failed = {name: outcome.output for name, outcome in said.items() if outcome.exit}
    assert failed.keys() == REFUSED, failed


def test_what_is_refused_is_said(said: dict[str, Outcome]) -> None:
    assert "a partition has one replica, on 0, the only broker" in said["elsewhere"].output
    assert f"topic '{TOPIC}' has 3 partitions; 2 is not more" in said["shrink"].output
    assert "cleanup.policy cannot be 'keep'" in said["keep"].output
    assert "num.partitions cannot be changed while the broker runs" in said["alter broker"].output
    assert "SecurityDisabledException" in said["acls"].output
    assert "'transaction.version' is always at level 2" in said["downgrade"].output
    assert "broker 77 is not registered" in said["unregister"].output


def test_cluster_wide_defaults(said: dict[str, Outcome]) -> None:
    assert "Completed updating default config for brokers" in said["default"].output
    assert "log.retention.bytes=9999 sensitive=false" in said["defaults"].output
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.bytes=9999" in said["defaults"].output


def test_topics(said: dict[str, Outcome]) -> None:
    (head, *partitions) = [line for line in said["describe"].lines if TOPIC in line]
    assert "PartitionCount: 3\tReplicationFactor: 1\tConfigs: retention.ms=99999" in head
    assert [line.split("\t")[2] for line in partitions] == [f"Partition: {n}" for n in range(3)]
    assert head in said["overrides"].lines


def test_configs(said: dict[str, Outcome]) -> None:
    synonyms = "{DYNAMIC_TOPIC_CONFIG:retention.ms=99999, DEFAULT_CONFIG:log.retention.hours=-1}"
    own = f"  retention.ms=99999 sensitive=false synonyms={synonyms}"
    assert [line for line in said["configs"].lines if "=" in line] == [own]
    assert own in said["all topics"].lines
    everything = said["all configs"].output
    assert f"  quafka.slug={TOPIC} sensitive=false" in everything
    assert "  quafka.rrl=1/default/" in everything
    assert "  num.partitions=1 sensitive=false" in said["broker"].output
    assert "  root=INFO sensitive=false" in said["loggers"].output


def test_the_log(said: dict[str, Outcome], shared_cluster: Cluster) -> None:
    (line,) = [line for line in said["dirs"].lines if line.startswith("{")]
    (folder,) = json.loads(line)["brokers"][0]["logDirs"]
    assert folder["logDir"] == str(shared_cluster.data / "wal")
    sizes = {each["partition"]: each["size"] for each in folder["partitions"]}
    assert sizes.keys() == {f"{TOPIC}-{n}" for n in range(3)}
    assert sum(sizes.values()) > 60
    assert f"partition: {TOPIC}-0\tlow_watermark: 1" in said["delete records"].lines
    assert said["starts"].lines[0] == f"{TOPIC}:0:1"
    assert said["ends"].lines[0] == f"{TOPIC}:0:3"
    assert [line.split("\t")[3].strip() for line in said["producers"].lines] == [
        "LastSequence",
        "2",
    ]


def test_replicas(said: dict[str, Outcome]) -> None:
    assert f"Valid replica already elected for partitions {TOPIC}-0" in said["elect"].lines
    assert "No partition reassignments found." in said["moving"].lines
    assert f"Successfully started partition reassignment for {TOPIC}-0" in said["move"].lines
    assert f"Reassignment of partition {TOPIC}-0 is completed." in said["moved"].lines


def test_the_cluster(said: dict[str, Outcome], shared_cluster: Cluster) -> None:
    cluster = said["id"].lines[0].removeprefix("Cluster ID: ")
    assert len(cluster) == 22
    assert any(line.split() == ["ClusterId:", cluster] for line in said["quorum"].lines)
    host, port = shared_cluster.address
    assert said["endpoints"].lines[1].split()[:3] == ["0", host, str(port)]
    assert "Leader" in said["replication"].lines[1]
    assert [line.split()[1::2] for line in said["features"].lines] == [
        ["group.version", "0", "1", "1", "0"],
        ["share.version", "0", "1", "1", "0"],
        ["transaction.version", "0", "2", "2", "0"],
    ]
    assert "\tDescribeConfigs(32): 0 to 4 [usable: 4]," in said["versions"].lines
    assert "\tUpdateFeatures(57): 0 to 2 [usable: 2]," in said["versions"].lines


def test_the_pages_of_web_uis(shared_cluster: Cluster, said: dict[str, Outcome]) -> None:
    """All that they ask is answered as by Kafka without replicas and authorizer."""
    topic = "of-pages"
    with RawClient(shared_cluster.address) as client:
        create_topic(client, topic, 5)
        produce(client, topic, b"a", b"b")
    consumer = Consumer({"bootstrap.servers": shared_cluster.bootstrap, "group.id": "readers"})
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    consumer.close()
    jars = kafka_tools()
    arguments = (shared_cluster.bootstrap, topic)
    answer = json.loads(run_java(JAVA / "Pages.java", jars, "", *arguments))
    broker, configs = answer.pop("broker configs"), answer.pop("topic configs")
    assert broker["num.partitions"] == ["1", "DEFAULT_CONFIG", "LONG", "true"]
    assert broker["delete.topic.enable"] == ["true", "DEFAULT_CONFIG", "BOOLEAN", "true"]
    assert configs["retention.ms"] == ["-1", "DEFAULT_CONFIG", "LONG", "false"]
    assert configs["quafka.slug"] == [topic, "DEFAULT_CONFIG", "STRING", "true"]
    assert topic in answer.pop("topics")
    assert "(id: 0 " in answer.pop("nodes")
    assert answer.pop("cluster") == said["id"].lines[0].removeprefix("Cluster ID: ")
    assert len(answer.pop("id")) == 22
    assert answer == {
        "cluster operations": 7, "features": 3, "quorum": 0, "partitions": 5,
        "topic operations": 8, "sizes": 5, "total": True, "end": 2, "groups": 1, "offsets": 1,
        "members": 0, "reassignments": 0, "producers": 0, "quotas": 0, "users": 0,
        "transactions": 1, "acls": "SecurityDisabledException",
        "tokens": "UnsupportedByAuthenticationException",
    }  # fmt: skip
