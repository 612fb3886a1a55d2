"""kill -9 under load: what was acknowledged is there, once, in order."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest
from confluent_kafka import Message, Producer

from quafka_proto.errors import ErrorCode
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.schema.fetch import FetchRequest, FetchResponse
from quafka_proto.schema.produce import ProduceResponse
from tests.support.cluster import Cluster
from tests.support.confluent import consume
from tests.support.kafka_calls import (
    VERSION,
    fetch,
    fetch_request,
    metadata,
    produce,
    produce_batch,
    produce_request,
    values,
)
from tests.support.prometheus import get
from tests.support.raw_client import RawClient

SECONDS_BETWEEN_KILLS = 0.7
KILLS = 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for all tests of this module: each ends with both processes running."""
    with Cluster(tmp_path_factory.mktemp("killed")) as running:
        yield running


class Load:
    """An idempotent producer that numbers its records and remembers what was acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.timeout.ms": 60_000,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.max.ms": 200,
            }
        )
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.sent = 0
        self.acked: dict[int, int] = {}  # number -> offset
        self.failed: list[str] = []

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60) == 0

    def _run(self) -> None:
        while not self._stop.is_set():
            number = self.sent
            self._producer.produce(
                self._topic,
                b"%d" % number,
                on_delivery=partial(self._delivered, number),
            )
            self.sent += 1
            self._producer.poll(0)
            time.sleep(0.0005)

    def _delivered(self, number: int, error: object, message: Message) -> None:
        offset = message.offset()
        if error is not None or offset is None:
            self.failed.append(str(error))
        else:
            self.acked[number] = offset


def test_nothing_acknowledged_is_lost_or_repeated(cluster: Cluster) -> None:
    load = Load(cluster.bootstrap, "numbers")
    load.start()
    for turn in range(KILLS):
        time.sleep(SECONDS_BETWEEN_KILLS)
        if turn % 2 == 0:
            cluster.broker.kill()
            cluster.start_broker()
        else:
            cluster.gateway.kill()
            cluster.start_gateway()
    time.sleep(SECONDS_BETWEEN_KILLS)
    load.finish()

    assert not load.failed, load.failed[:3]
    assert len(load.acked) == load.sent > 0
    read = [int(m.value() or b"") for m in consume(cluster.bootstrap, "numbers", load.sent)]
    assert read == list(range(load.sent))
    assert load.acked == {number: offset for offset, number in enumerate(read)}


@pytest.mark.long
def test_nothing_behind_an_idempotent_batch_that_was_not_answered_is_answered(
    cluster: Cluster,
) -> None:
    """librdkafka stores the first batch twice if a later one is out of order at the next broker."""
    records = [Record(0, 1_000, None, b"x", [])]
    batches = [
        build_batch(records, producer_id=7, producer_epoch=0, base_sequence=sequence)
        for sequence in range(3)
    ]
    with RawClient(cluster.address) as client:
        metadata(client, "t")
        assert produce_batch(client, "t", batches[0]) == 0
        cluster.broker.popen.send_signal(signal.SIGSTOP)
        for batch in batches[1:]:
            request = produce_request("t", b"")
            request.topic_data[0].partition_data[0].records = batch
            client.send(request, VERSION["produce"])
        cluster.broker.kill()
        assert client.closed_by_peer()
    cluster.start_broker()
    with RawClient(cluster.address) as client:
        for sequence, batch in enumerate(batches):
            assert produce_batch(client, "t", batch) == sequence


def _unanswered_ops(cluster: Cluster) -> int:
    (broker,) = json.loads(get(cluster.gateway.ready["operations"], "/mesh")[2])["peers"]
    unanswered: int = broker["ops"]
    return unanswered


@pytest.mark.long
def test_who_is_not_idempotent_is_told_that_the_outcome_is_unknown(cluster: Cluster) -> None:
    with RawClient(cluster.address) as client:
        metadata(client, "t")
        cluster.broker.popen.send_signal(signal.SIGSTOP)
        client.send(produce_request("t", b"x"), VERSION["produce"])
        while not _unanswered_ops(cluster):
            time.sleep(0.01)
        cluster.broker.kill()
        _, answer = client.receive(ProduceResponse, VERSION["produce"])
        code = answer.responses[0].partition_responses[0].error_code
        assert code == ErrorCode.REQUEST_TIMED_OUT
        cluster.start_broker()


@pytest.mark.long
def test_a_parked_fetch_of_a_killed_broker_gets_a_retriable_error_and_then_goes_on(
    cluster: Cluster,
) -> None:
    with RawClient(cluster.address) as client:
        metadata(client, "parked")
        assert produce(client, "parked", b"before") == 0
        client.send(fetch_request("parked", 1, max_wait_ms=20_000), VERSION["fetch"])
        time.sleep(0.3)  # let it reach the broker
        cluster.broker.kill()
        _, answer = client.receive(FetchResponse, VERSION["fetch"])
        partition = answer.responses[0].partitions[0]
        assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        cluster.start_broker()
        assert produce(client, "parked", b"after") == 1
        assert values(fetch(client, "parked", 0)) == [b"before", b"after"]


@pytest.mark.long
def test_a_session_whose_broker_is_killed_goes_on_with_no_gap_and_no_repeat(
    cluster: Cluster,
) -> None:
    """The session is the gateway's: it outlives the broker, and tells that the error is over."""
    with RawClient(cluster.address) as client:
        metadata(client, "session")
        assert produce(client, "session", b"0") == 0
        begin = fetch_request("session", 0, session_id=0, session_epoch=0)
        full = client.call(begin, FetchResponse, VERSION["fetch"])
        assert values(full.responses[0].partitions[0]) == [b"0"]
        session = full.session_id
        assert session > 0

        parked = fetch_request(
            "session", 1, max_wait_ms=20_000, session_id=session, session_epoch=1
        )
        client.send(parked, VERSION["fetch"])
        time.sleep(0.3)  # let it reach the broker
        cluster.broker.kill()
        _, answer = client.receive(FetchResponse, VERSION["fetch"])
        assert (answer.error_code, answer.session_id) == (0, session)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

        cluster.start_broker()
        again = FetchRequest(
            max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_id=session, session_epoch=2
        )
        back = client.call(again, FetchResponse, VERSION["fetch"]).responses[0].partitions[0]
        assert (back.error_code, back.high_watermark, values(back)) == (0, 1, [])
        assert produce(client, "session", b"1") == 1
        again.session_epoch = 3
        more = client.call(again, FetchResponse, VERSION["fetch"]).responses[0].partitions[0]
        assert values(more) == [b"1"]


def test_requests_wait_for_a_broker_that_is_restarting(cluster: Cluster) -> None:
    with RawClient(cluster.address, timeout=60) as client:
        metadata(client, "waits")
        cluster.broker.stop()
        request = produce_request("waits", b"sent while it was away")
        request.timeout_ms = 60_000  # the gateway waits this long, and a start may take seconds
        client.send(request, VERSION["produce"])
        time.sleep(0.3)
        cluster.start_broker()
        _, answer = client.receive(ProduceResponse, VERSION["produce"])
        partition = answer.responses[0].partition_responses[0]
        assert (partition.error_code, partition.base_offset) == (0, 0)
