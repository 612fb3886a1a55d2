"""Checks of the commands that look at a whole cluster, for any server."""

from __future__ import annotations

from tests.support.command import Command


def check_bench(quafka: Command, topic: str) -> None:
    """Load a topic, which is created, and read it."""
    bench = f"bench produce -t {topic} -p 2 --format json"
    written = quafka(f"{bench} -n 2000 --record-size 50 -z lz4").json
    assert (written["records"], written["bytes"]) == (2_000, 100_000)
    shown = written["latency_ms"]
    values = [shown[name] for name in ("p50", "p95", "p99", "p99.9", "max")]
    assert values == sorted(values)
    assert values[0] > 0
    slow = quafka(f"{bench} -n 50 --rate 500 --acks 1").json
    assert slow["records"] == 50
    assert slow["records_per_second"] < 600, "50 records take at least 98 ms at this rate"
    read = quafka(f"bench consume -t {topic} --format json").json
    assert read["records"] == 2_050
    assert quafka(f"bench consume -t {topic}").out.startswith("consume")
    trips = quafka(f"bench latency -t {topic} -n 20 --format json").json
    assert trips["records"] == 20
    assert trips["latency_ms"]["max"] >= trips["latency_ms"]["p50"] > 0
    assert "no such topic" in quafka("bench consume -t no-such", code=1).err
    assert "--record-size" in quafka(f"bench latency -t {topic} --record-size 1", code=2).err


def check_cluster_commands(quafka: Command, topic: str) -> None:
    """The views of a cluster that has a topic with records."""
    found = quafka("cluster --format json").json
    assert found["healthy"]
    assert found["topics"] >= 1
    assert any(node["controller"] for node in found["nodes"])
    assert found["cluster_id"] in quafka("cluster").out
    places = quafka("shards --format json").json["shards"]
    assert sum(place["bytes"] for place in places) > 0
    assert "PARTITIONS" in quafka("shards").out
    active = quafka("top --interval 0.1 --format json").json
    (row,) = [each for each in active["topics"] if each["name"] == topic]
    assert row["partitions"] == 2
    assert row["bytes"] > 0
    assert f"\n{topic} " in quafka("top --interval 0.1 --sort size").out
