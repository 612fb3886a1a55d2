"""Topics from Redis as operators see them: no secret anywhere, lag, doctor, status, kills."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.integration.test_redis_streams import Reader, create, values_in
from tests.support.cluster import Cluster
from tests.support.command import Command
from tests.support.prometheus import get
from tests.support.redis_server import RedisServer, load
from tests.support.spans import collector

pytestmark = [pytest.mark.long, pytest.mark.needs("redis-server")]

PASSWORD = "hunter2-right"
WRONG = "hunter2-wrong"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "redis", "--appendonly", "yes", "--appendfsync", "always") as found:
        yield found


def allowed(server: RedisServer) -> tuple[str, ...]:
    return "--sources-redis-allowed", server.address


@pytest.mark.local_log
def test_a_secret_is_shown_nowhere(tmp_path: Path) -> None:
    """Not in a config, log, trace, page, metric, answer of a command, or file of the data."""
    secrets, folder = tmp_path / "secrets", tmp_path / "cluster"
    secrets.mkdir()
    folder.mkdir()
    (secrets / "right").write_text(f"default:{PASSWORD}")
    (secrets / "wrong").write_text(WRONG)
    with (
        RedisServer(tmp_path / "redis", "--requirepass", PASSWORD) as server,
        collector() as spans,
        Cluster(
            folder,
            (*allowed(server), "--sources-redis-secrets", str(secrets)),
            env={**spans.env, "QUAFKA_REDIS_HERE": PASSWORD},
        ) as cluster,
    ):
        quafka = Command(cluster.bootstrap)
        seen: list[str] = []
        for name, auth in (
            ("f", "file:right"),
            ("e", "env:QUAFKA_REDIS_HERE"),
            ("w", "file:wrong"),
        ):
            source = server.source("s", f"auth={auth}")
            seen.append(quafka("topics create", name, "--source", source).out)
            if name != "w":  # repeated until it is right
                quafka("produce --topic", name, stdin=b"x\n")
        refused = quafka(
            "topics create", "u", "--source", f"redis://me:{PASSWORD}@{server.address}/0?stream=s",
            code=1,
        )  # fmt: skip
        assert "a topic config is not secret" in refused.err
        seen += [refused.out, refused.err]
        for command in (
            "topics describe f e w --format json", "doctor", "topics list --format json",
        ):  # fmt: skip
            ran = quafka(command, code=None)
            seen += [ran.out, ran.err]
        for process in (cluster.broker, cluster.gateway):
            for page in ("/statusz", "/metrics", "/mesh", "/readyz"):
                seen.append(get(process.ready["operations"], page)[2])
        assert "refuses the user or the password" in " ".join(seen)
        time.sleep(0.5)
        seen += [str(span) for span in spans.spans]
        cluster.broker.stop()
        dumped = subprocess.run(
            [sys.executable, "-m", "quafka", "wal", "dump", str(cluster.data)],
            capture_output=True, check=False,
        )  # fmt: skip
        assert dumped.stdout
        seen += [str(dumped.stdout), str(dumped.stderr)]
        found = [path for path in folder.rglob("*") if path.is_file()]
        assert len(found) > 5
        seen += [path.read_bytes().decode("latin-1") for path in found]
    assert len(spans.spans) > 5
    for text in seen:
        assert PASSWORD not in text
        assert WRONG not in text


def test_lag_counts_entries(tmp_path: Path, server: RedisServer) -> None:
    with server.client() as client, Cluster(tmp_path, allowed(server)) as cluster:
        ids = load(client, "s:0", [b"%d" % n for n in range(500)], 50)
        load(client, "s:1", [b"%d" % n for n in range(500)], 50)
        create(cluster, server.source("s:{p}"), partitions=2)
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.assign([TopicPartition("t", n, 0) for n in range(2)])
        records: list[Any] = []
        while len(records) < 1_000:
            records += consumer.consume(1_000, 5)
        hundredth = [r for r in records if r.partition() == 0][99]
        last = [r for r in records if r.partition() == 1][-1]
        consumer.commit(message=hundredth, asynchronous=False)
        consumer.commit(message=last, asynchronous=False)
        consumer.close()
        quafka = Command(cluster.bootstrap)

        def lags() -> list[Any]:
            (group,) = quafka("groups describe g --format json").json["groups"]
            return [each["lag"] for each in group["partitions"]]

        assert lags() == [400, 0]
        load(client, "s:0", [b"new"])
        time.sleep(0.2)
        assert lags() == [401, 0]
        client.xdel("s:0", ids[300])  # Redis counts no entries behind a deleted one
        time.sleep(0.2)
        assert lags() == [None, 0]


def test_doctor_and_status(tmp_path: Path, server: RedisServer) -> None:
    with Cluster(tmp_path, allowed(server)) as cluster:
        quafka = Command(cluster.bootstrap)
        quafka("topics create t --source", server.source("s"))
        found = quafka("doctor", code=None).out
        assert f"redis://{server.address}/0: Redis" in found
        assert "master; 1 topic at" in found
        (described,) = quafka("topics describe t --format json").json["topics"]
        assert described["partitions"][0]["records"] is None
        page = get(cluster.broker.ready["operations"], "/statusz")[2]
        assert "in Redis" in page
        assert "Redis servers: 1" in page
        assert "connected" in page
        server.kill()
        found = quafka("doctor", code=None).out
        assert "Redis cannot be reached" in found
        assert "the broker retries automatically" in found
        page = get(cluster.broker.ready["operations"], "/statusz")[2]
        assert "Redis cannot be reached" in page
        metrics = get(cluster.broker.ready["operations"], "/metrics")[2]
        assert f'quafka_redis_up{{org="1",server="redis://{server.address}/0"}} 0' in metrics


def test_a_killed_broker_doubles_and_loses_nothing(tmp_path: Path, server: RedisServer) -> None:
    """The broker dies between XADD and its answer; the producer repeats the batch."""
    with Cluster(tmp_path, allowed(server)) as cluster:
        create(cluster, server.source("s"))
        reader = Reader(cluster.bootstrap, "t", 1)
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 1}
        )
        acknowledged: list[bytes] = []

        def delivered(error: KafkaError | None, message: Any) -> None:
            assert error is None, error
            acknowledged.append(message.value())

        done = threading.Event()

        def kill() -> None:
            for _ in range(2):
                if not done.wait(0.5):
                    cluster.broker.kill()
                    cluster.start_broker()

        killer = threading.Thread(target=kill)
        killer.start()
        sent = 0
        while killer.is_alive():
            producer.produce("t", b"%d" % sent, on_delivery=delivered)
            producer.poll(0)
            time.sleep(0.0005)
            sent += 1
        done.set()
        killer.join()
        assert producer.flush(60) == 0
        expected = [b"%d" % n for n in range(sent)]
        assert values_in(server, "s") == expected
        assert acknowledged == expected
        reader.wait_for(sent)
        reader.stop()
        assert [value for _, value in reader.records[0]] == expected
