"""A real broker with a full disk or failing system calls: answers match the stored records."""

from __future__ import annotations

import errno
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from quafka_proto.errors import ErrorCode
from quafka_proto.schema.produce import ProduceResponse
from tests.crash import kills
from tests.support.cluster import Cluster
from tests.support.faults import Faults
from tests.support.kafka_calls import VERSION, fetch, metadata, produce, produce_request, values
from tests.support.mounts import mountable, tmpfs
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.long


@pytest.fixture
def faults(tmp_path: Path) -> Faults:
    return Faults(tmp_path)


@pytest.fixture
def faulty(tmp_path: Path, faults: Faults) -> Iterator[Cluster]:
    """A cluster whose broker's calls can be made to fail."""
    with Cluster(tmp_path, broker_command=faults.command) as cluster:
        yield cluster


def try_to_produce(client: RawClient, *records: bytes) -> ErrorCode:
    answer = client.call(produce_request("t", *records), ProduceResponse, VERSION["produce"])
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def everything(client: RawClient) -> list[bytes]:
    """All values of the topic, by as many fetches as needed."""
    found: list[bytes] = []
    until = time.monotonic() + 20
    while time.monotonic() < until:
        answer = fetch(client, "t", len(found))
        if answer.error_code:
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER  # it has just started
            continue
        some = values(answer)
        if not some:
            return found
        found += some
    raise AssertionError("the topic cannot be read")


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_failing_write_is_refused_and_disturbs_no_later_one(
    faulty: Cluster, faults: Faults, error: int
) -> None:
    with RawClient(faulty.address) as client:
        metadata(client, "t")
        assert produce(client, "t", b"before") == 0
        with faults.failing(faulty.broker.pid, "rw/writev", error):
            assert try_to_produce(client, b"refused") == ErrorCode.KAFKA_STORAGE_ERROR
            assert everything(client) == [b"before"]
        assert produce(client, "t", b"after") == 1
        faulty.broker.kill()
        faulty.start_broker()
        assert everything(client) == [b"before", b"after"]


def test_after_a_failing_sync_nothing_is_ever_acknowledged_and_reads_go_on(
    faulty: Cluster, faults: Faults
) -> None:
    with RawClient(faulty.address) as client:
        metadata(client, "t")
        assert produce(client, "t", b"before") == 0
        with faults.failing(faulty.broker.pid, "sync/fdatasync", errno.EIO):
            assert try_to_produce(client, b"doubted") == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert try_to_produce(client, b"refused") == ErrorCode.KAFKA_STORAGE_ERROR
        assert everything(client) == [b"before"]
        faulty.broker.kill()
        faulty.start_broker()
        found = everything(client)
        assert found in ([b"before"], [b"before", b"doubted"])
        assert produce(client, "t", b"after") == len(found)


def test_batches_refused_by_a_failed_sync_are_not_found_later(
    faulty: Cluster, faults: Faults
) -> None:
    """Real clients repeat batches in doubt unchanged, so nothing is stored twice."""

    def failing_syncs(cluster: Cluster, _rng: random.Random) -> None:
        with faults.failing(cluster.broker.pid, "sync/fdatasync", errno.EIO):
            time.sleep(0.3)
        cluster.broker.kill()
        cluster.start_broker()

    figures = kills.run(
        faulty, 3, nemeses=(failing_syncs,), per_second=100, between=(0.1, 0.4), seed=4
    )
    assert not figures.problems, str(figures)
    assert not figures.given_up, str(figures)
    assert figures.acked == figures.sent > 100


def test_real_clients_get_everything_through_a_disk_that_fails_now_and_then(
    faulty: Cluster, faults: Faults
) -> None:
    def flaky(cluster: Cluster, rng: random.Random) -> None:
        with faults.failing(cluster.broker.pid, "rw/writev", errno.ENOSPC, 0.3):
            time.sleep(rng.uniform(0.2, 0.5))

    def killed_while_flaky(cluster: Cluster, rng: random.Random) -> None:
        with faults.failing(cluster.broker.pid, "rw/writev", errno.EIO, 0.3):
            time.sleep(rng.uniform(0.0, 0.2))
        kills.kill_broker(cluster, rng)

    figures = kills.run(
        faulty, 6, nemeses=(flaky, killed_while_flaky), per_second=100, between=(0.1, 0.4), seed=3
    )
    assert not figures.problems, str(figures)
    assert not figures.given_up, str(figures)
    assert figures.acked == figures.sent > 500


def test_a_full_disk_refuses_writes_serves_reads_and_takes_writes_when_there_is_room(
    tmp_path: Path,
) -> None:
    with mountable(), tmpfs(mebibytes=4) as folder:
        ballast = folder / "ballast"
        ballast.write_bytes(bytes(2 << 20))
        with Cluster(tmp_path, data=folder / "data") as cluster:
            with RawClient(cluster.address) as client:
                metadata(client, "t")
                kept = fill(client)
                assert kept, "there was room for something"
                assert everything(client) == kept
                ballast.unlink()
                kept.append(first_taken(client, len(kept)))
                assert everything(client) == kept
            cluster.restart()
            with RawClient(cluster.address) as client:
                assert everything(client) == kept


def fill(client: RawClient) -> list[bytes]:
    """Produce until a refusal; returns the accepted values."""
    taken: list[bytes] = []
    while True:
        value = b"%d-" % len(taken) * 5_000
        code = try_to_produce(client, value)
        if code:
            assert code == ErrorCode.KAFKA_STORAGE_ERROR
            return taken
        taken.append(value)
        assert len(taken) < 10_000, "the disk was never full"


def first_taken(client: RawClient, number: int) -> bytes:
    """Retry until a write is accepted: no restart is needed."""
    value = b"room again %d" % number
    until = time.monotonic() + 20
    while code := try_to_produce(client, value):
        assert code == ErrorCode.KAFKA_STORAGE_ERROR
        assert time.monotonic() < until, "writing did not resume"
        time.sleep(0.1)
    return value
