"""`python -m tests.bench fairness`: what one org at full speed costs another.

The neighbour, org 2, has 16 connections that produce 100-byte records at a fixed rate. It is
measured alone, and while org 1 does one thing as fast as it is served: on the neighbour's gateway,
and on a gateway of its own, with one broker. The flood's clients run at the lowest priority, but
on this machine: on few cores they cost the neighbour some of its time, too. How much, show two bare
servers that answer everything at once, one for each org; and Apache Kafka has both orgs' clients.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from quafka_mesh_ops.identity import Identity
from tests.bench import flood, load, peers
from tests.bench.floor import floor
from tests.bench.parked import create
from tests.bench.peers import cpu_seconds
from tests.support.cluster import Cluster, Process
from tests.support.kafka_calls import produce_request
from tests.support.ports import lasting_port
from tests.support.raw_client import RawClient

RATE, CONNECTIONS = 200, 16
_PRIORITY = -10
_PRELOADED = 128
"""Requests of `flood.LARGE` bytes that the flood's fetches find."""


class _Orgs(NamedTuple):
    """Where the clients of the two orgs connect, and the processes that serve them."""

    flooding: tuple[str, int]
    neighbour: tuple[str, int]
    processes: dict[str, int]
    topics: bool = True
    """Whether they have topics, which must be made."""


@contextmanager
def _one_gateway(folder: Path) -> Generator[_Orgs]:
    listeners = "PLAINTEXT://127.0.0.1:0,NEIGHBOUR://127.0.0.1:0"
    cluster = Cluster(
        folder,
        gateway_args=(
            "--listener-security-protocol-map", "PLAINTEXT:PLAINTEXT,NEIGHBOUR:PLAINTEXT",
            "--listener-org", "NEIGHBOUR:2",
        ),
        listeners=listeners,
    )  # fmt: skip
    with cluster:
        yield _Orgs(
            cluster.address_of("PLAINTEXT"),
            cluster.address_of("NEIGHBOUR"),
            {"gateway": cluster.gateway.pid, "broker": cluster.broker.pid},
        )


@contextmanager
def _two_gateways(folder: Path) -> Generator[_Orgs]:
    key = folder / "second.key"
    node_id = Identity.load_or_create(key).node_id
    with Cluster(folder, broker_args=("--mesh-allow", _both(folder, node_id))) as cluster:
        args = ["gateway", "--listen", f"127.0.0.1:{lasting_port()}"]
        args += ["--mesh-peers", cluster.broker.ready["mesh"], "--ops-listen", "127.0.0.1:0"]
        args += ["--mesh-allow", cluster.broker.ready["node_id"], "--node-key", str(key)]
        second = Process([*args, "--org-id", "2"], folder / "second.log")
        host, port = second.ready["listen"].rsplit(":", 1)
        try:
            yield _Orgs(
                cluster.address,
                (host, int(port)),
                {
                    "gateway": cluster.gateway.pid,
                    "second": second.pid,
                    "broker": cluster.broker.pid,
                },
            )
        finally:
            second.stop()


def _both(folder: Path, second: str) -> str:
    return f"{Identity.load_or_create(folder / 'gateway.key').node_id},{second}"


@contextmanager
def _bare(_: Path) -> Generator[_Orgs]:
    with floor("floor") as flooding, floor("floor") as neighbour:
        pids = {"flooded": flooding.pids[-1], "neighbour's": neighbour.pids[-1]}
        yield _Orgs(flooding.address, neighbour.address, pids, topics=False)


@contextmanager
def _kafka(folder: Path) -> Generator[_Orgs]:
    with peers.kafka(folder / "kafka") as server:
        yield _Orgs(server.address, server.address, {"kafka": server.pids[0]})


PLACES: dict[str, tuple[str, Callable[[Path], AbstractContextManager[_Orgs]]]] = {
    "same": ("the same gateway", _one_gateway),
    "each": ("a gateway each", _two_gateways),
    "bare": ("a bare server each", _bare),
    "kafka": ("Apache Kafka", _kafka),
}


def _prepare(orgs: _Orgs) -> None:
    for address in {orgs.flooding, orgs.neighbour}:
        with RawClient(address, 60) as client:
            create(client, load.TOPIC, load.PARTITIONS)
    with RawClient(orgs.flooding, 60) as client:
        for number in range(_PRELOADED):
            request = produce_request(
                load.TOPIC, bytes(flood.LARGE), partition=number % load.PARTITIONS
            )
            client.send(request, 9)
            client.receive_frame()


def _measure(orgs: _Orgs, seconds: float, what: str, alone: load.Load | None) -> load.Load:
    with load.running(orgs.neighbour, CONNECTIONS, RATE, seconds) as running:
        before = {name: cpu_seconds(each) for name, each in orgs.processes.items()}
        seen = running.result()
        used = {n: cpu_seconds(each) - before[n] for n, each in orgs.processes.items()}
    cost = ""
    if alone is not None:
        lost = 1 - seen.answered / alone.answered
        cost = f"{lost:7.1%} of its throughput, {seen.p99 - alone.p99:+8.1f} ms of its p99"
    cores = ", ".join(f"{name} {100 * each / seconds:.0f}%" for name, each in used.items())
    print(
        f"  {what:18} {seen.answered / seconds:7.0f}/s  p50 {seen.p50:7.1f}  "
        f"p99 {seen.p99:7.1f} ms  {cost:52} ({cores})",
        flush=True,
    )
    return seen


def _prefer(orgs: _Orgs) -> None:
    """Keep what else runs on this machine out of the figures, where the system allows it."""
    with suppress(PermissionError):
        for process in (0, *orgs.processes.values()):
            os.setpriority(os.PRIO_PROCESS, process, _PRIORITY)


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench fairness")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--kinds", nargs="+", choices=flood.KINDS, default=list(flood.KINDS))
    parser.add_argument("--places", nargs="+", choices=PLACES, default=["same", "each"])
    options = parser.parse_args(arguments)
    for name, place in [PLACES[each] for each in options.places]:
        print(f"org 2, {RATE} requests/s, while org 1 floods, on {name}")
        with tempfile.TemporaryDirectory() as folder, place(Path(folder)) as orgs:
            if orgs.topics:
                _prepare(orgs)
            _prefer(orgs)
            alone = _measure(orgs, options.seconds, "alone", None)
            for kind in options.kinds:
                with flood.running(orgs.flooding, kind):
                    _measure(orgs, options.seconds, f"beside {kind}", alone)
