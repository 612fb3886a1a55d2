"""A log of 3,000 segments, 6,000 files, at a broker that may open 256."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from quafka_broker.config.settings import BrokerConfig
from quafka_broker.wal.disk import RealDisk
from tests.support.cluster import Cluster
from tests.support.confluent import consume
from tests.support.fetch_calls import put
from tests.support.no_threads import no_threads
from tests.support.raw_client import RawClient
from tests.unit.broker.tools import ORG, checked, running_state

pytestmark = pytest.mark.long

SEGMENTS = 3_000
LIMIT = 256
FEW_FILES = ("sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "sh")


async def _write(data: Path) -> None:
    disk = RealDisk(data / "wal", 16)
    config = BrokerConfig(data=data)
    with no_threads():
        async with running_state(disk, config, segment_bytes=100) as state:
            topic, _ = await state.topics.create(ORG, "t", 1)
            partition = state.log.partitions.get(topic.partition_id(0))
            for n in range(SEGMENTS):
                await state.log.queue.append(partition, checked(b"%05d" % n))


def test_3000_segments_with_256_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    (data / "wal").mkdir(parents=True)
    with monkeypatch.context() as quick:
        quick.setattr("os.fdatasync", lambda _fd: None)
        quick.setattr("os.fsync", lambda _fd: None)
        asyncio.run(_write(data))
    assert len(list((data / "wal").glob("*.log"))) >= SEGMENTS
    expected = [b"%05d" % n for n in range(SEGMENTS)]
    with Cluster(tmp_path, data=data, broker_command=FEW_FILES) as cluster:
        for start in ("first", "after kill -9"):
            if start != "first":
                cluster.broker.kill()
                cluster.start_broker()
            found = [message.value() for message in consume(cluster.bootstrap, "t", SEGMENTS)]
            assert found == expected, start
            assert len(list(Path(f"/proc/{cluster.broker.pid}/fd").iterdir())) < LIMIT // 2
        with RawClient(cluster.address) as client:
            assert put(client, "t", b"more") == SEGMENTS
        assert "Too many open files" not in cluster.broker.log.read_text()
