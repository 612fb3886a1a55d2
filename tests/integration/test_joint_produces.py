"""Requests of many connections share ops, and each is answered as if it were alone."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from quafka_proto.errors import ErrorCode
from quafka_proto.schema.fetch import FetchResponse
from quafka_proto.schema.produce import ProduceRequest, ProduceResponse
from tests.support.cluster import Cluster
from tests.support.kafka_calls import (
    VERSION,
    create_topic,
    fetch_request,
    produce_request,
    values,
)
from tests.support.prometheus import Scrape
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.long

TOPIC, PARTITIONS = "joint", 3
CONNECTIONS, ROUNDS, PIPELINED = 24, 15, 3


def ops(cluster: Cluster) -> float:
    scrape = Scrape(str(cluster.broker.ready["operations"]))
    return scrape("quafka_broker_ops_total", op="produce")


def request(connection: int, turn: int, number: int) -> ProduceRequest:
    """Each connection writes to one partition; some batches are damaged."""
    value = b"%d %d %d" % (connection, turn, number)
    made = produce_request(TOPIC, value, partition=connection % PARTITIONS)
    if is_damaged(connection, turn, number):
        data = made.topic_data[0].partition_data[0]
        assert data.records is not None
        data.records = bytes(data.records[:-1]) + b"\xff"
    return made


def is_damaged(connection: int, turn: int, number: int) -> bool:
    return (connection + turn + number) % 10 == 0


def test_each_answer_is_that_of_its_request_and_connections_keep_their_order(
    tmp_path: Path,
) -> None:
    with Cluster(tmp_path) as cluster, ExitStack() as stack:
        clients = [stack.enter_context(RawClient(cluster.address)) for _ in range(CONNECTIONS)]
        create_topic(clients[0], TOPIC, PARTITIONS)
        before = ops(cluster)
        written: list[dict[int, bytes]] = [{} for _ in range(PARTITIONS)]
        for turn in range(ROUNDS):
            for number, client in enumerate(clients):
                version = VERSION["produce"]
                client.send_together(
                    *((request(number, turn, n), version) for n in range(PIPELINED))
                )
            for number, client in enumerate(clients):
                for n in range(PIPELINED):
                    _, response = client.receive(ProduceResponse, VERSION["produce"])
                    (part,) = response.responses[0].partition_responses
                    if is_damaged(number, turn, n):
                        assert part.error_code == ErrorCode.CORRUPT_MESSAGE
                        continue
                    assert (part.index, part.error_code) == (number % PARTITIONS, 0)
                    assert part.base_offset not in written[part.index]
                    written[part.index][part.base_offset] = b"%d %d %d" % (number, turn, n)
        shared = ops(cluster) - before
        assert shared < 0.7 * CONNECTIONS * ROUNDS * PIPELINED
        for number, expected in enumerate(written):
            found: list[bytes] = []
            while len(found) < len(expected):
                asked = fetch_request(TOPIC, len(found))
                asked.topics[0].partitions[0].partition = number
                answer = clients[0].call(asked, FetchResponse, VERSION["fetch"])
                found += values(answer.responses[0].partitions[0])
            assert found == [expected[offset] for offset in range(len(expected))]
            for connection in range(number, CONNECTIONS, PARTITIONS):
                mine = [v for v in found if v.startswith(b"%d " % connection)]
                assert mine == sorted(mine, key=lambda v: [int(word) for word in v.split()])
