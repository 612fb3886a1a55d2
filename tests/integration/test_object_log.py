"""A log in an object store, by real processes: lost disks, takeovers, paused owners, outages."""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from quafka_proto.errors import ErrorCode
from quafka_proto.schema.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from quafka_proto.schema.produce import ProduceResponse
from quafka_proto.schema.scram import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from tests.integration.test_kill import Load
from tests.integration.test_up import Up
from tests.support.admin_calls import own_configs, set_config
from tests.support.cluster import Cluster
from tests.support.confluent import consume
from tests.support.kafka_calls import (
    VERSION,
    commit,
    create_topic,
    fetch,
    metadata,
    produce,
    produce_request,
    values,
)
from tests.support.raw_client import RawClient
from tests.support.s3 import S3, s3_server
from tests.support.sasl_users import alter_users, upsertion
from tests.support.store_outage import with_outages
from tests.support.transactional import TV1, RawProducer

E = ErrorCode
RETRIABLE = (
    E.KAFKA_STORAGE_ERROR,
    E.NOT_LEADER_OR_FOLLOWER,
    E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    E.REQUEST_TIMED_OUT,
    E.LEADER_NOT_AVAILABLE,
    E.COORDINATOR_NOT_AVAILABLE,
    E.COORDINATOR_LOAD_IN_PROGRESS,
)
OUTAGE_SECONDS = 20.0
TOPICS = ("a", "b", "c", "d")
FLOODS = 4


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with s3_server() as server:
        yield server


@pytest.fixture(params=["folder", pytest.param("moto", marks=pytest.mark.more_stores)])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster whose log is in a store: a folder in the place of one, or moto's S3."""
    if request.param == "folder":
        cluster = Cluster(tmp_path, store=f"file://{tmp_path / 'store'}")
    else:
        server: S3 = request.getfixturevalue("s3")
        url = f"{server.url}/{tmp_path.name}"
        cluster = Cluster(tmp_path, store=url, env=server.environment)
    with cluster:
        yield cluster


def beside(cluster: Cluster) -> Cluster:
    """Another broker on the same store, on a machine of its own, with a gateway."""
    folder = cluster.folder / "beside"
    folder.mkdir()
    return Cluster(folder, store=cluster.store, env=cluster.env)


def committed(client: RawClient, group: str, topic: str) -> int:
    request = OffsetFetchRequest(
        group_id=group, topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
    )
    answer = client.call(request, OffsetFetchResponse, 5)
    return answer.topics[0].partitions[0].committed_offset


def users(client: RawClient) -> list[str]:
    request = DescribeUserScramCredentialsRequest(users=None)
    answer = client.call(request, DescribeUserScramCredentialsResponse, 0)
    return [result.user for result in answer.results]


def try_produce(client: RawClient, topic: str, value: bytes) -> int:
    """Produce a record; the error."""
    response = client.call(produce_request(topic, value), ProduceResponse, VERSION["produce"])
    return response.responses[0].partition_responses[0].error_code


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.02)


def test_everything_survives_the_loss_of_the_machine(stored: Cluster) -> None:
    alter_users(stored.address, upsertion("ann", "secret"))
    with RawClient(stored.address) as client:
        create_topic(client, "t")
        assert set_config(client, "t", "max.message.bytes", "500000") == 0
        assert produce(client, "t", b"a", b"b", b"c") == 0
        commit(client, "g", "t", 2)
        producer = RawProducer(client, "x", TV1)
        for number, ending in enumerate((True, False)):
            assert producer.initialise() == 0
            assert producer.add_partitions("t", [0]) == 0
            assert producer.produce("t", {0: [b"txn-%d" % number]}) == 0
            assert producer.end(commit=ending) == 0
    stored.broker.kill()
    shutil.rmtree(stored.data)
    stored.start_broker()
    with RawClient(stored.address) as client:
        assert own_configs(client, "t") == {"max.message.bytes": "500000"}
        assert committed(client, "g", "t") == 2
        assert users(client) == ["ann"]
        assert producer.epoch >= 0
        producer.client = client
        assert producer.initialise() == 0
        assert produce(client, "t", b"later") == 7
    found = [message.value() for message in consume(stored.bootstrap, "t", 5)]
    assert found == [b"a", b"b", b"c", b"txn-0", b"later"]
    stored.stop()


def _has_acked(load: Load, count: int) -> bool:
    return len(load.acked) > count


@pytest.mark.long
def test_under_load_a_killed_broker_starts_on_an_empty_machine(stored: Cluster) -> None:
    load = Load(stored.bootstrap, "numbers")
    load.start()
    for _ in range(2):
        reached = len(load.acked)
        until(partial(_has_acked, load, reached + 200))
        stored.broker.kill()
        shutil.rmtree(stored.data)
        stored.start_broker()
    load.finish()
    assert not load.failed, load.failed[:3]
    read = [int(m.value() or b"") for m in consume(stored.bootstrap, "numbers", load.sent)]
    assert read == list(range(load.sent))
    assert load.acked == {number: offset for offset, number in enumerate(read)}


@pytest.mark.long
def test_a_broker_that_stops_gives_the_log_up_at_once(stored: Cluster) -> None:
    with RawClient(stored.address) as client:
        metadata(client, "t")
        assert produce(client, "t", b"a") == 0
    stored.stop()
    with beside(stored) as other:
        assert "waiting" not in other.logs, "for the end of a lease"
        with RawClient(other.address) as client:
            assert values(fetch(client, "t", 0)) == [b"a"]
            assert produce(client, "t", b"b") == 1


@pytest.mark.long
def test_a_paused_owner_that_wakes_after_a_takeover_acknowledges_nothing(stored: Cluster) -> None:
    acked = [b"before"]
    with RawClient(stored.address, timeout=30) as client:
        metadata(client, "t")
        assert produce(client, "t", b"before") == 0
        stored.broker.popen.send_signal(signal.SIGSTOP)
        client.send(produce_request("t", b"to a paused owner"), VERSION["produce"])
        with beside(stored) as other:
            produce_until_acked(other, b"meanwhile")
            acked.append(b"meanwhile")
            stored.broker.popen.send_signal(signal.SIGCONT)
            until(lambda: "another broker has taken the log over" in stored.logs)
            error = answer_of(client)
            assert error in (E.NONE, *RETRIABLE)  # the gateway may have sent it to the new owner
            if error == E.NONE:
                acked.append(b"to a paused owner")
            assert stored.broker.stop() == 0  # what went back to it goes to the other again
            produce_until_acked(other, b"last")
            found = [m.value() for m in consume(other.bootstrap, "t", len(acked) + 1)]
            assert found == [*sorted(acked, key=found.index), b"last"], "all of it, once"
    stored.stop()


def produce_until_acked(cluster: Cluster, value: bytes) -> None:
    """Produce as clients do: again after an error that asks for it."""
    give_up = time.monotonic() + 30
    while time.monotonic() < give_up:
        with RawClient(cluster.address, timeout=30) as client, suppress(ConnectionError):
            error = try_produce(client, "t", value)
            if error == E.NONE:
                return
            assert error in (*RETRIABLE, E.UNKNOWN_TOPIC_OR_PARTITION), error
        time.sleep(0.05)
    raise AssertionError("no answer")


def answer_of(client: RawClient) -> int:
    _, response = client.receive(ProduceResponse, VERSION["produce"])
    error: int = response.responses[0].partition_responses[0].error_code
    return error


@pytest.mark.long
def test_up_begins_anew_on_what_is_in_the_store(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    place = ("--data", f"file://{tmp_path / 'store'}", "--cache", str(cache))
    for offset in range(2):
        with Up(tmp_path / "unused", "127.0.0.1:0", *place) as up:
            with RawClient(up.wait_ready(), timeout=30) as client:
                for topic in TOPICS:  # of different shards
                    metadata(client, topic)
                    assert produce(client, topic, b"x") == offset
            code, printed = up.interrupt()
            assert code == 0, printed
        shutil.rmtree(cache)


@pytest.mark.long
@pytest.mark.more_stores
def test_an_outage_of_the_store_costs_retriable_errors_and_no_record(
    s3: S3, tmp_path: Path
) -> None:
    endpoint = s3.environment["AWS_ENDPOINT_URL"]
    with with_outages(int(endpoint.rpartition(":")[2])) as outage:
        env = {**s3.environment, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{outage.port}"}
        cluster = Cluster(
            tmp_path,
            store=f"{s3.url}/{tmp_path.name}",
            env=env,
            broker_args=("--store-timeout-ms", "1500"),
        )
        with cluster:
            load = Load(cluster.bootstrap, "numbers")
            load.start()
            with RawClient(cluster.address) as client:
                for number in range(FLOODS):
                    create_topic(client, f"flood-{number}")
            until(partial(_has_acked, load, 100))
            outage.begin()
            errors = _errors_of(cluster)
            assert set(errors) <= set(RETRIABLE) | {E.NONE}
            assert E.KAFKA_STORAGE_ERROR in errors
            outage.end()
            load.finish()
            assert not load.failed, load.failed[:3]
            read = [int(m.value() or b"") for m in consume(cluster.bootstrap, "numbers", load.sent)]
            assert read == list(range(load.sent))
            assert load.acked == {number: offset for offset, number in enumerate(read)}


def _errors_of(cluster: Cluster) -> list[int]:
    """Errors of large produces during the outage. The broker's memory stays as it is."""
    errors: list[int] = []
    stop = time.monotonic() + OUTAGE_SECONDS
    lock = threading.Lock()

    def flood(number: int) -> None:
        while time.monotonic() < stop:
            with RawClient(cluster.address, timeout=30) as client:
                error = try_produce(client, f"flood-{number}", bytes(500_000))
                with lock:
                    errors.append(error)

    before = memory_of(cluster.broker.pid)
    floods = [threading.Thread(target=partial(flood, number)) for number in range(FLOODS)]
    for thread in floods:
        thread.start()
    most = before
    while time.monotonic() < stop:
        most = max(most, memory_of(cluster.broker.pid))
        time.sleep(0.1)
    for thread in floods:
        thread.join(40)
    assert most - before < 100 << 20, "bytes"
    return errors


def memory_of(pid: int) -> int:
    """Resident bytes of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) << 10
