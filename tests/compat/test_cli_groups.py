"""What `quafka groups describe` says of groups of real clients, against what these know."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer
from kafka.coordinator.assignors.range import RangePartitionAssignor

from tests.support.cluster import Cluster
from tests.support.command import Command
from tests.support.group_members import SECONDS, fill, member, owned, produce, read, until

pytestmark = pytest.mark.long


def described(quafka: Command, group: str) -> dict[str, Any]:
    (found,) = quafka(f"groups describe {group} --format json").json["groups"]
    result: dict[str, Any] = found
    return result


def test_members_of_two_libraries_and_their_lag(group_cluster: Cluster) -> None:
    quafka = Command(group_cluster.bootstrap)
    fill(group_cluster, "two", 40)
    ours = member(group_cluster, "two", "two", {"client.id": "rd", "enable.auto.commit": False})
    theirs = KafkaConsumer(
        "two",
        bootstrap_servers=group_cluster.bootstrap,
        group_id="two",
        client_id="py",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        partition_assignment_strategy=[RangePartitionAssignor],
        heartbeat_interval_ms=200,
    )

    def shared() -> bool:
        theirs.poll(timeout_ms=50)
        return len(owned(ours)) == 2 and len(theirs.assignment()) == 2

    until(shared, ours)
    ours.commit(offsets=[TopicPartition("two", p, 4) for p in owned(ours)], asynchronous=False)
    # Where it begins, or behind what it has read meanwhile.
    positions = {place.partition: theirs.position(place) for place in theirs.assignment()}
    theirs.commit()
    expected = dict.fromkeys(owned(ours), 6) | {p: 10 - at for p, at in positions.items()}

    group = described(quafka, "two")
    assert (group["state"], group["protocol"], group["protocol_type"]) == (
        "Stable", "range", "consumer",
    )  # fmt: skip
    assert {each["client_id"]: len(each["partitions"]["two"]) for each in group["members"]} == {
        "rd": 2, "py": 2,
    }  # fmt: skip
    assert {each["partition"]: each["lag"] for each in group["partitions"]} == expected
    for each in group["partitions"]:
        assert each["client_id"] == ("rd" if each["partition"] in owned(ours) else "py")
        assert each["host"] == "127.0.0.1"
        assert (each["behind_seconds"] > 0) is (each["lag"] > 0)
        assert each["behind_seconds"] < 120, "the records are as old as this test"
    assert group["lag"] == sum(expected.values())
    assert "rd" in quafka("groups describe two").out
    refused = quafka("groups reset-offsets two --to start", code=1).err
    assert "stop its consumers first" in refused

    theirs.close()
    ours.close()
    idle = described(quafka, "two")
    assert (idle["state"], idle["members"], idle["lag"]) == ("Empty", [], group["lag"])
    assert idle["behind_seconds"] > 0
    quafka("groups reset-offsets two --to end")
    produce(group_cluster, "two", range(40, 44))
    # What the command has moved is what a client finds.
    back = member(group_cluster, "two", "two")
    assert sorted(read(back, 4)) == [b"40", b"41", b"42", b"43"]
    back.close()
    assert described(quafka, "two")["lag"] == 0


def test_an_asyncio_member_and_librdkafkas_admin_agree(group_cluster: Cluster) -> None:
    quafka = Command(group_cluster.bootstrap)
    fill(group_cluster, "third", 40)

    async def consume() -> None:
        consumer = AIOKafkaConsumer(
            "third",
            bootstrap_servers=group_cluster.bootstrap,
            group_id="third",
            client_id="aio",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        count = 0
        async with asyncio.timeout(SECONDS):
            while count < 25:
                count += sum(
                    map(len, (await consumer.getmany(timeout_ms=200, max_records=5)).values())
                )
        await consumer.commit()
        group = await asyncio.to_thread(described, quafka, "third")
        assert [each["client_id"] for each in group["members"]] == ["aio"]
        assert group["lag"] == 40 - count
        await consumer.stop()

    asyncio.run(consume())
    admin = AdminClient({"bootstrap.servers": group_cluster.bootstrap})
    request = [ConsumerGroupTopicPartitions("third")]
    answer = admin.list_consumer_group_offsets(request)["third"].result(SECONDS)
    theirs = {each.partition: each.offset for each in answer.topic_partitions}
    group = described(quafka, "third")
    assert {each["partition"]: each["committed_offset"] for each in group["partitions"]} == theirs
    assert {each["partition"]: each["lag"] for each in group["partitions"]} == {
        partition: 10 - offset for partition, offset in theirs.items()
    }
