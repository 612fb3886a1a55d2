"""`python -m tests.bench turns`: the work of one org that another org's request waits for.

Gateway and broker in one process, without sockets and disk, and CPU time as the clock: what else
runs on the machine is not in the figures, which `fairness` cannot say of its own. One request of
the neighbour is measured at a time, alone and while connections of the other org always have more
requests; with and without turns of the gateway's loop and shares of the broker's queue.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast
from unittest import mock

from quafka_broker.ops.table import OPS as HANDLERS
from quafka_broker.wal import append_queue
from quafka_gateway.api import APIS
from quafka_gateway.cluster.broker_link import BrokerLink
from quafka_gateway.config import EdgeSettings
from quafka_gateway.context import Services
from quafka_gateway.edge.connection import KafkaConnection
from quafka_gateway.memory import RequestMemory, ResponseMemory
from quafka_gateway.security.directory import Directory
from quafka_gateway.tenants import Tenants
from quafka_loop.fair_turns import FairTurns
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.ops.base import AnyOp
from quafka_proto.headers import encode_request
from quafka_proto.message import Message
from quafka_proto.schema.api_versions import ApiVersionsRequest
from quafka_telemetry.tracing import Tracer
from tests.bench.load import TOPIC
from tests.support.kafka_calls import VERSION, produce_request
from tests.support.memory_transport import MemoryTransport
from tests.support.tenants import LISTENER, tenant_over
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import context, running_state

FLOODING, NEIGHBOUR = 1, 2
PARTITIONS = 12
_WARM = 10
_Kind = tuple[int, int, Message, int]
"""Connections, requests outstanding on each, the request and its version."""
KINDS: dict[str, _Kind] = {
    "small": (400, 1, produce_request(TOPIC, bytes(100)), VERSION["produce"]),
    "produce": (16, 4, produce_request(TOPIC, bytes(512 << 10)), VERSION["produce"]),
    "requests": (64, 50, ApiVersionsRequest(), 0),
}


class _Mesh:
    """Hands ops to the broker's handlers, in turns of their own."""

    connected = True

    def __init__(self, state: Any) -> None:
        self._state = state

    async def call(self, op: AnyOp, *, org_id: int, **_: Any) -> object:
        await asyncio.sleep(0)
        return await HANDLERS[op.code](self._state, replace(context(), org_id=org_id), op)


class _Client(MemoryTransport):
    """A connection that sends its request again when it is answered, as long as it is read from."""

    def __init__(self, services: Services, org: int, serial: int, frame: bytes) -> None:
        super().__init__()
        self.answer = asyncio.Event()
        self.floods = False
        self._frame = frame
        self._unsent = 0
        self._loop = asyncio.get_running_loop()
        listener = replace(LISTENER, org=str(org))
        self.connection = KafkaConnection(services, APIS, listener, serial, lambda _: None)
        self.connection.connection_made(self)

    def send(self, count: int = 1) -> None:
        if not self._unsent:
            self._loop.call_soon(self._arrive)
        self._unsent += count

    def _arrive(self) -> None:
        if self._unsent and not self.paused:
            count, self._unsent = self._unsent, 0
            self.connection.data_received(self._frame * count)

    def resume_reading(self) -> None:
        super().resume_reading()
        self._loop.call_soon(self._arrive)

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.answer.set()
        if self.floods:
            self.send()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"")


def _frame(request: Message, version: int) -> bytes:
    return b"".join(encode_request(1, "turns", request, version))


@contextmanager
def _unfair(off: bool) -> Generator[None]:
    if not off:
        yield
        return
    with (
        mock.patch.object(FairTurns, "shared", property(lambda _: False, lambda *_: None)),
        mock.patch.object(append_queue, "_SHARED_SECONDS", 0.0),
    ):
        yield


async def _measure(kind: _Kind | None, requests: int) -> list[float]:
    """CPU milliseconds for which each request of the neighbour waited, in order of size."""
    async with running_state(MemoryDisk()) as state:
        for org in (FLOODING, NEIGHBOUR):
            await state.topics.create(org, TOPIC, PARTITIONS)
        memory = ResponseMemory(1 << 30)
        mesh = cast(MeshClient, _Mesh(state))
        tenants = {
            org: tenant_over(BrokerLink(mesh, org), memory, org) for org in (FLOODING, NEIGHBOUR)
        }
        services = Services(
            APIS, Tenants(lambda org: tenants[org], FLOODING, Directory(), most=2), (LISTENER,),
            Tracer(), 100 << 20, RequestMemory(1 << 30), memory, EdgeSettings(),
        )  # fmt: skip
        neighbour = _Client(services, NEIGHBOUR, 0, _frame(*KINDS["small"][2:]))
        flood = [] if kind is None else _flood(services, kind)
        waits = [await _wait(neighbour, number % 7) for number in range(requests + _WARM)]
        for client in flood:
            client.floods = False
        for client in (neighbour, *flood):
            client.connection.connection_lost(None)
            await client.connection.wait_ended()
        for tenant in tenants.values():
            await tenant.close()
        return sorted(waits[_WARM:])


def _flood(services: Services, kind: _Kind) -> list[_Client]:
    connections, depth, request, version = kind
    frame = _frame(request, version)
    flood = [_Client(services, FLOODING, n + 1, frame) for n in range(connections)]
    for client in flood:
        client.floods = True
        client.send(depth)
    return flood


async def _wait(client: _Client, turns: int) -> float:
    """Send a request after so many turns of the loop; returns the milliseconds of its wait."""
    for _ in range(turns):
        await asyncio.sleep(0)
    client.answer.clear()
    began = time.process_time()
    client.send()
    async with asyncio.timeout(60):
        await client.answer.wait()
    return (time.process_time() - began) * 1e3


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench turns")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    options = parser.parse_args(arguments)
    print("CPU ms that one small produce of an org waits for")
    rows: list[tuple[str, _Kind | None, bool]] = [("alone", None, False)]
    for kind in options.kinds:
        rows.append((f"beside {kind}, by arrival", KINDS[kind], True))
        rows.append((f"beside {kind}, in turns", KINDS[kind], False))
    for name, load, off in rows:
        with _unfair(off):
            waits = asyncio.run(_measure(load, options.requests))
        p50, p99 = waits[len(waits) // 2], waits[len(waits) * 99 // 100]
        print(f"  {name:32} p50 {p50:8.2f}  p99 {p99:8.2f}", flush=True)
