"""Real processes that are killed or frozen: the other one notices in time, and all goes on."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from quafka_proto.schema.produce import ProduceResponse
from tests.support.cluster import Cluster, Process
from tests.support.kafka_calls import VERSION, fetch_request, metadata, produce_request
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.long

KILLED, FROZEN = 1.0, 3.0
"""Seconds. It takes 0.1 to 0.2 on an idle machine, and 2.0 to 2.2 where only silence tells."""


def notices(watcher: Process, line: str, before: int, at_most: float) -> tuple[float, float]:
    """Seconds until the watcher's log has one more such line: all, and those of a quiet machine.

    Of those, each look counts for no more than 10 ms: a machine on which this process waits for
    its turn for longer makes the watcher wait, too.
    """
    began = looked = time.monotonic()
    own = 0.0
    while watcher.log.read_text().count(line) == before:
        assert time.monotonic() < began + at_most, f"{line!r} not within {at_most} s"
        time.sleep(0.002)
        now = time.monotonic()
        own, looked = own + min(now - looked, 0.01), now
    return time.monotonic() - began, own


def served(cluster: Cluster) -> int:
    """A producer that retries, as clients do, is served soon. The log's end."""
    until = time.monotonic() + 30
    while True:
        # The gateway closes a connection whose produce may have happened or not.
        with RawClient(cluster.address) as client, suppress(ConnectionError):
            metadata(client, "t")
            answer = client.call(produce_request("t", b"x"), ProduceResponse, VERSION["produce"])
            partition = answer.responses[0].partition_responses[0]
            if partition.error_code == 0:
                return partition.base_offset + 1
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("victim", "line"), [("gateway", "disconnected"), ("broker", "no connection to")]
)
def test_a_peer_is_frozen_and_then_killed(tmp_path: Path, victim: str, line: str) -> None:
    with Cluster(tmp_path) as cluster, RawClient(cluster.address) as client:
        served(cluster)
        processes = [cluster.broker, cluster.gateway]
        watcher, dying = processes if victim == "gateway" else processes[::-1]
        seen = watcher.log.read_text().count(line)
        os.kill(dying.pid, signal.SIGSTOP)
        wall, own = notices(watcher, line, seen, 4.0)
        assert wall > 1.0
        assert own < FROZEN
        os.kill(dying.pid, signal.SIGCONT)
        stored = served(cluster)
        client.send(fetch_request("t", stored, max_wait_ms=10_000), VERSION["fetch"])
        time.sleep(0.3)  # until nothing is under way but the parked fetch
        seen = watcher.log.read_text().count(line)
        dying.popen.kill()
        assert notices(watcher, line, seen, 4.0)[1] < KILLED
        dying.popen.wait()
        if victim == "gateway":
            cluster.start_gateway()
        else:
            cluster.start_broker()
        served(cluster)
