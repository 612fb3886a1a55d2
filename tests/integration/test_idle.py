"""What two processes do while their clients do nothing, in wake-ups of their event loops."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.cluster import Cluster, Process
from tests.support.kafka_calls import create_topic
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.long

CONNECTIONS = 50
SECONDS = 2.0
WAKE_UPS = 40
"""A second, at most: twice what the timers of the mesh's liveness take."""


def wake_ups(process: Process) -> int:
    """How many times the main thread has waited so far."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("voluntary_ctxt_switches"):
            return int(line.split()[1])
    raise AssertionError("no count of context switches")


def test_idle_connections_wake_neither_process(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster, ExitStack() as stack:
        clients = [stack.enter_context(RawClient(cluster.address)) for _ in range(CONNECTIONS)]
        create_topic(clients[0], "idle", 1)
        time.sleep(1)  # timers of what has just been done
        processes = cluster.gateway, cluster.broker
        before = [wake_ups(process) for process in processes]
        began = time.monotonic()
        time.sleep(SECONDS)
        took = time.monotonic() - began
        rates = [(wake_ups(p) - b) / took for p, b in zip(processes, before, strict=True)]
    assert max(rates) < WAKE_UPS, rates
