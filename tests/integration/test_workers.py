"""Several gateways on one port: one port, one node identity, one broker, many processes."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.kafka_calls import fetch, metadata, produce, values
from tests.support.prometheus import Scrape
from tests.support.raw_client import RawClient

WORKERS = 3
SECONDS = 20.0
ESTABLISHED = "01"  # in /proc/net/tcp


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def accepted(pid: int, port: int) -> int:
    """A process's established TCP connections on a port of its own."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    inodes = {
        row[9] for row in rows if int(row[1].split(":")[1], 16) == port and row[3] == ESTABLISHED
    }
    held = [str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()]
    return sum(f"socket:[{inode}]" in held for inode in inodes)


def wait_until(true: Callable[[], bool]) -> None:
    give_up = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < give_up
        time.sleep(0.05)


def test_workers_share_the_port_the_identity_and_the_broker(tmp_path: Path) -> None:
    with Cluster(tmp_path, gateway_args=("--workers", str(WORKERS))) as cluster:
        pids = children(cluster.gateway.pid)
        assert len(pids) == WORKERS
        clients = [RawClient(cluster.address) for _ in range(40)]
        try:
            metadata(clients[0], "t")
            produce(clients[0], "t", b"here")
            assert all(values(fetch(client, "t", 0)) == [b"here"] for client in clients)
            served = [accepted(pid, cluster.address[1]) for pid in pids]
            assert sum(served) == len(clients)
            assert all(served), "the system gave one of them nothing"
            operations = cluster.gateway.ready["operations"].split(", ")
            counted = [Scrape(address)("quafka_gateway_connections") for address in operations]
            assert sorted(counted) == sorted(served), "each worker counts its own"
        finally:
            for client in clients:
                client.socket.close()


@pytest.mark.long
def test_a_worker_that_is_killed_comes_back_on_the_port(tmp_path: Path) -> None:
    with Cluster(tmp_path, gateway_args=("--workers", "2")) as cluster:
        with RawClient(cluster.address) as client:
            metadata(client, "t")
            produce(client, "t", b"here")
        first, second = children(cluster.gateway.pid)
        subprocess.run(["kill", "-9", str(first)], check=True)
        wait_until(lambda: first not in children(cluster.gateway.pid))
        wait_until(lambda: len(children(cluster.gateway.pid)) == 2)
        assert second in children(cluster.gateway.pid)
        with RawClient(cluster.address) as client:
            assert values(fetch(client, "t", 0)) == [b"here"]


@pytest.mark.long
def test_up_runs_as_many_gateways_as_it_is_told_and_stops_them(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "quafka", "up", "--listen", "127.0.0.1:0", "--workers", "2"]
    command += ["--gateway-ops-listen", "127.0.0.1:0", "--broker-ops-listen", "127.0.0.1:0"]
    command += ["--console", "false"]
    up = subprocess.Popen(
        [*command, "--data", str(tmp_path / "data")], stdout=subprocess.PIPE, text=True
    )
    assert up.stdout is not None
    line = next(line for line in up.stdout if "Kafka clients" in line)
    host, port = line.split()[-1].rsplit(":", 1)
    pids = children(up.pid)
    assert len(pids) == 3
    with RawClient((host, int(port))) as client:
        metadata(client, "t")
        produce(client, "t", b"here")
        assert values(fetch(client, "t", 0)) == [b"here"]
    up.send_signal(signal.SIGINT)
    printed, _ = up.communicate(timeout=SECONDS)
    assert up.returncode == 0, printed
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.long
def test_workers_do_not_join_somebody_elses_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [sys.executable, "-m", "quafka", "up", "--listen", address, "--workers", "2"]
        command += ["--console", "false"]
        done = subprocess.run(
            [*command, "--data", str(tmp_path)], capture_output=True, text=True, check=False
        )
    assert done.returncode == 1
    assert f"cannot listen on {address}" in done.stderr
