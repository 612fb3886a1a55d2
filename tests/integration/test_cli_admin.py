"""`quafka topics | groups | configs` against real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from quafka_proto.schema.share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from quafka_proto.schema.share_groups import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from tests.support.cluster import Cluster
from tests.support.command import Command
from tests.support.kafka_calls import produce
from tests.support.raw_client import RawClient


@pytest.fixture
def quafka(shared_cluster: Cluster) -> Command:
    return Command(shared_cluster.bootstrap)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A topic's name of this test's own."""
    test: str = request.node.name
    return test.replace("_", "-")


def test_a_topic_from_its_creation_to_its_end(quafka: Command, name: str) -> None:
    assert quafka(f"topics create {name} -p 3 -c retention.ms=5000 --dry-run").out == (
        f"would create {name}\n"
    )
    assert [name, "3", "1"] not in quafka("topics list").rows
    assert quafka(f"topics create {name} -p 3 -c retention.ms=5s").out == f"created {name}\n"
    assert [name, "3", "1"] in quafka("topics list").rows
    again = quafka(f"topics create {name}", code=1)
    assert name in again.err
    assert again.err.count("\n") == 1
    assert quafka(f"topics create {name} --if-not-exists").out == f"exists {name}\n"

    (topic,) = quafka(f"topics describe {name} --format json").json["topics"]
    assert topic["name"] == topic["slug"] == name
    assert topic["id"].startswith("top_")
    assert topic["rrl"].endswith(f"/topics/{name}")
    assert [each["partition"] for each in topic["partitions"]] == [0, 1, 2]
    text = quafka(f"topics describe {name}").out
    assert topic["id"] in text
    assert topic["rrl"] in text
    assert "retention.ms  5s" in text

    quafka(f"topics alter {name} --set retention.bytes=7KiB --unset retention.ms")
    own = [config for config in _configs(quafka, name) if config["source"] == "topic"]
    assert [(each["name"], each["value"]) for each in own] == [("retention.bytes", "7168")]
    grown = quafka(f"topics add-partitions {name} -n 2 --format json").json
    assert grown == {"topic": name, "before": 3, "partitions": 5}
    assert [name, "5", "1"] in quafka("topics list").rows
    assert quafka(f"topics delete {name}").out == f"deleted {name}\n"
    assert "no such topic" in quafka(f"topics delete {name}", code=1).err
    assert "no such topic" in quafka(f"topics describe {name}", code=1).err


def test_a_list_with_figures(quafka: Command, name: str, client: RawClient) -> None:
    """Sorted by what was asked for; other tests' topics are among them."""
    quafka(f"topics create {name} {name}-empty")
    produce(client, name, *[b"x" * 1_000] * 50)
    listed = quafka("topics list --sizes --format json").json["topics"]
    mine = {each["name"]: each for each in listed if each["name"].startswith(name)}
    assert (mine[name]["records"], mine[f"{name}-empty"]["records"]) == (50, 0)
    assert mine[name]["bytes"] > 50_000
    assert mine[name]["records_per_second"] is None, "not asked for"
    headings, first = quafka("topics list --sort records --limit 1").out.splitlines()
    assert headings.split() == ["TOPIC", "PARTITIONS", "REPLICAS", "RECORDS", "SIZE"]
    most = max(listed, key=lambda each: each["records"] or 0)["records"]
    assert int(first.split()[3]) == most
    rated = quafka("topics list --rates 0.1 --format json").json["topics"]
    assert {each["records_per_second"] for each in rated if each["name"] in mine} == {0.0}


def _configs(quafka: Command, name: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = quafka(f"configs describe {name} --format json").json["configs"]
    return found


def test_configs(quafka: Command, name: str) -> None:
    quafka(f"topics create {name}")
    tried = quafka(f"configs set {name} retention.ms=9000 --dry-run")
    assert tried.out.startswith(f"would change topic {name}\n")
    assert ["retention.ms", "-1", "9s"] in tried.rows
    quafka(f"configs set {name} retention.ms=9000 max.message.bytes=1000")
    tried = quafka(f"topics alter {name} --set retention.ms=7 --unset max.message.bytes --dry-run")
    assert tried.out.startswith(f"would change {name}\n")
    assert ["retention.ms", "9s", "7ms"] in tried.rows
    assert ["max.message.bytes", "1000", "1048588"] in tried.rows
    (found,) = quafka(f"topics alter {name} --unset retention.ms --dry-run --format json").json[
        "topics"
    ]
    assert found["changes"] == [{"name": "retention.ms", "before": "9000", "after": "-1"}]
    assert ["retention.ms", "9s", "topic"] in quafka(f"configs describe {name}").rows
    assert "retention.ms = 9s  (set by: topic)" in quafka(f"configs describe {name} --docs").out
    quafka(f"configs unset {name} retention.ms")
    assert ["retention.ms", "9s", "topic"] not in quafka(f"configs describe {name}").rows
    assert "retention.ms" in quafka(f"configs set {name} retention.ms=soon", code=1).err
    assert "no such topic" in quafka("configs set not-there retention.ms=1", code=1).err
    assert "broker.id" in quafka("configs describe 0 --type broker").out
    assert "is not a broker's node id" in quafka("configs describe x --type broker", code=1).err
    close = quafka(f"configs set {name} retention.mss=1", code=1).err
    assert "did you mean retention.ms?" in close


def test_configs_of_groups(quafka: Command, name: str) -> None:
    changed = quafka(f"configs set {name} share.auto.offset.reset=earliest --type group")
    assert changed.rows[-1] == ["share.auto.offset.reset", "latest", "earliest"]
    shown = quafka(f"configs describe {name} --type group").rows
    assert ["share.auto.offset.reset", "earliest", "group"] in shown
    quafka(f"configs unset {name} share.auto.offset.reset --type group")
    shown = quafka(f"configs describe {name} --type group").rows
    assert ["share.auto.offset.reset", "latest", "default"] in shown
    wrong = quafka(f"configs set {name} share.auto.offset.rest=latest --type group", code=1).err
    assert "did you mean share.auto.offset.reset?" in wrong


@pytest.mark.long
def test_delete_records(quafka: Command, name: str, client: RawClient) -> None:
    quafka(f"topics create {name} -p 2")
    produce(client, name, *[b"v"] * 5)  # a second after 1970, one each millisecond
    assert quafka(f"topics delete-records {name}:0 --before 2").rows == [["0", "2"]]
    assert quafka(f"topics delete-records {name} --before @1003").rows == [["0", "3"], ["1", "0"]]
    assert quafka(f"topics delete-records {name}:0 --before end").rows == [["0", "5"]]
    assert "does not have that offset" in quafka(
        f"topics delete-records {name}:0 --before 9", code=1
    ).err  # fmt: skip
    assert "no partition 7" in quafka(f"topics delete-records {name}:7 --before 1", code=2).err


@pytest.mark.long
def test_a_groups_offsets(quafka: Command, name: str, client: RawClient, tmp_path: Path) -> None:
    quafka(f"topics create {name} -p 2")
    produce(client, name, *[b"v"] * 5)
    group = f"g-{name}"
    assert "no committed offsets" in quafka(f"groups reset-offsets {group} --to end", code=1).err
    reset = quafka(f"groups reset-offsets {group} -t {name} --to end --dry-run")
    assert reset.rows == [[name, "0", "-", "5", "0", "0"], [name, "1", "-", "0", "0", "0"]]
    assert quafka(f"groups describe {group}", code=1).err.count(group) == 1
    quafka(f"groups reset-offsets {group} -t {name} --to end")
    back = quafka(f"groups reset-offsets {group} -t {name}:0 --to -2")
    assert back.rows == [[name, "0", "5", "3"]]
    assert quafka(f"groups reset-offsets {group} --to @1001").rows == [
        [name, "0", "3", "1"], [name, "1", "0", "0"],
    ]  # fmt: skip
    assert quafka(f"groups reset-offsets {group} --to 99 -t {name}:0").rows == [
        [name, "0", "1", "5"]
    ]  # no further than the end
    saved = tmp_path / "offsets.csv"
    saved.write_text(quafka(f"groups export {group}").out)
    assert saved.read_text() == f"{name},0,5\n{name},1,0\n"
    quafka(f"groups reset-offsets {group} --to start")
    assert quafka(f"groups reset-offsets {group} --from-file {saved} --dry-run").rows == [
        [name, "0", "0", "5", "5", "0"], [name, "1", "0", "0", "0", "0"],
    ]  # fmt: skip
    saved.write_text(f"{group},{name},1,0\nother,{name},0,3\n")
    (moved,) = quafka(f"groups reset-offsets {group} --from-file {saved}").rows
    assert moved == [name, "1", "0", "0"]
    saved.write_text(f"{name},zero,5\n")
    wrong = quafka(f"groups reset-offsets {group} --from-file {saved}", code=2).err
    assert "line 1 is not TOPIC,PARTITION,OFFSET" in wrong
    (found,) = quafka(f"groups export {group} --format json").json["groups"]
    assert found["partitions"][0] == {"topic": name, "partition": 0, "offset": 0}
    assert "no committed offsets" in quafka("groups export no-such-group", code=1).err

    (found,) = quafka(f"groups describe {group} --format json").json["groups"]
    assert (found["state"], found["lag"], found["members"]) == ("Empty", 5, [])
    assert found["behind_seconds"] > 1_000_000_000  # since 1970
    lagging, done = found["partitions"]
    assert found["uncommitted"] == 0
    assert (lagging["committed_offset"], lagging["high_watermark"], lagging["lag"]) == (0, 5, 5)
    assert (done["lag"], done["behind_seconds"], done["catch_up_seconds"]) == (0, 0, 0)
    (listed,) = [row for row in quafka("groups list").rows if row[0] == group]
    assert listed[:5] == [group, "classic", "Empty", "0", "5"]
    assert group not in quafka("groups list --state stable").out

    assert quafka(f"groups delete-offsets {group} -t {name}:1").rows == [[name, "1", "0", "-"]]
    note = "partitions of these topics without a committed offset, and so without lag: 1\n"
    assert note in quafka(f"groups describe {group}").out
    (found,) = quafka(f"groups describe {group} --format json").json["groups"]
    assert found["uncommitted"] == 1
    assert "no offsets" in quafka(f"groups delete-offsets {group} -t other", code=1).err
    assert quafka(f"groups delete {group}").out == f"deleted {group}\n"
    assert "no such group" in quafka(f"groups delete {group}", code=1).err
    assert group not in quafka("groups list").out


@pytest.mark.long
def test_a_share_group(quafka: Command, name: str, client: RawClient) -> None:
    quafka(f"topics create {name} -p 2")
    group, member = f"g-{name}", "A" * 22

    def beat(epoch: int, topics: list[str] | None = None) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(
            group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=topics
        )
        return client.call(request, ShareGroupHeartbeatResponse, 1)

    joined = beat(0, [name])
    assert joined.error_code == 0
    assert joined.assignment is not None
    (part,) = joined.assignment.topic_partitions
    assert sorted(part.partitions) == [0, 1]
    (found,) = quafka(f"groups describe {group} --format json").json["groups"]
    assert (found["kind"], found["state"], found["protocol"]) == ("share", "Stable", "simple")
    assert [each["partitions"] for each in found["members"]] == [{name: [0, 1]}]
    assert "simple" in quafka(f"groups describe {group}").out
    (listed,) = [row for row in quafka("groups list").rows if row[0] == group]
    assert listed[:4] == [group, "share", "Stable", "1"]

    refused = quafka(f"groups delete {group}", code=1).err
    assert "member" in refused
    refused = quafka(f"groups reset-offsets {group} -t {name} --to end", code=1).err
    assert "is not empty" in refused
    assert beat(-1).member_epoch == -1
    start = AlterShareGroupOffsetsRequestPartition(partition_index=1, start_offset=0)
    topic = AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=[start])
    altered = client.call(
        AlterShareGroupOffsetsRequest(group_id=group, topics=[topic]),
        AlterShareGroupOffsetsResponse,
        0,
    )
    assert altered.responses[0].topic_id == part.topic_id
    (found,) = quafka(f"groups describe {group} --format json").json["groups"]
    (only,) = found["partitions"]
    assert (only["partition"], only["committed_offset"], only["lag"]) == (1, 0, 0)
    assert only["high_watermark"] == 0
    quafka(f"produce -t {name} -p 1", stdin=b"1\n2\n3\n")
    (listed,) = [row for row in quafka("groups list").rows if row[0] == group]
    assert listed == [group, "share", "Empty", "0", "3", "-"], "no times of share groups"
    (only,) = quafka(f"groups describe {group} --format json").json["groups"][0]["partitions"]
    assert (only["high_watermark"], only["lag"]) == (3, 3)
    moved = quafka(f"groups reset-offsets {group} --to end --dry-run")
    assert moved.rows == [[name, "1", "0", "3", "3", "0"]]
    assert "WOULD BECOME" in moved.out
    assert quafka(f"groups reset-offsets {group} -t {name} --to 2").rows == [
        [name, "0", "-", "0"], [name, "1", "0", "2"],
    ]  # fmt: skip
    assert quafka(f"groups reset-offsets {group} --to=-1").rows == [
        [name, "0", "0", "0"], [name, "1", "2", "1"],
    ]  # fmt: skip
    assert "all partitions of a topic" in quafka(
        f"groups delete-offsets {group} -t {name}:1", code=2
    ).err  # fmt: skip
    assert quafka(f"groups delete-offsets {group} -t {name}").rows == [
        [name, "0", "0", "-"], [name, "1", "1", "-"],
    ]  # fmt: skip
    assert quafka(f"groups describe {group} --format json").json["groups"][0]["partitions"] == []
    quafka(f"groups reset-offsets {group} -t {name}:1 --to start")
    findings = quafka("doctor --groups --format json").json["findings"]
    assert any("without members" in f["message"] for f in findings if f["check"] == "groups")
    assert found["state"] == "Empty"
    quafka(f"groups delete {group}")
    assert "no such group" in quafka(f"groups describe {group}", code=1).err
    beat(0, [name])
    (found,) = quafka(f"groups describe {group} --format json").json["groups"]
    assert found["partitions"] == [], "a group of the same name begins anew"


@pytest.mark.long
def test_part_of_it_failing_is_exit_1_and_the_rest_is_done(quafka: Command, name: str) -> None:
    quafka(f"topics create {name}")
    ran = quafka(f"topics delete not-there {name} --format json", code=1)
    assert {each["topic"]: each["status"] for each in ran.json["topics"]} == {
        name: "deleted", "not-there": "failed",
    }  # fmt: skip
    assert "not-there" in ran.err
    assert "error" in ran.out


def test_compaction_is_described(quafka: Command, name: str) -> None:
    quafka(f"topics create {name} -p 2 -c cleanup.policy=compact")
    (topic,) = quafka(f"topics describe {name} --format json").json["topics"]
    assert [each["partition"] for each in topic["compaction"]] == [0, 1]
    assert topic["compaction"][0]["last_ms"] is None
    assert "DIRTY BYTES" in quafka(f"topics describe {name}").out
    refused = quafka(f"topics delete-records {name} --before end", code=1)
    assert "policy forbids it" in refused.err
    quafka(f"topics alter {name} --set cleanup.policy=delete")
    assert "DIRTY BYTES" not in quafka(f"topics describe {name}").out
