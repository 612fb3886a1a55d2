"""Notices between brokers to read the manifests now, and perhaps to take a shard.

A notice saves its receiver some tenths of a second; correctness does not depend on it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager

from quafka_broker.cluster.peers import OtherBrokers
from quafka_mesh_ops.errors import MeshError
from quafka_mesh_ops.ops.cluster import LookAtShards
from quafka_mesh_ops.shard_client import OpClient
from quafka_telemetry.tracing import TraceContext

log = logging.getLogger("quafka.broker.cluster")

SECONDS = 1.0


class Notices:
    """Sends notices in the background. For one event loop."""

    def __init__(self, brokers: OtherBrokers, me: str) -> None:
        """`me`: the node of this broker, which gets no notices."""
        self._brokers = brokers
        self._me = me
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, node: str, address: str) -> None:
        """Ask another broker to look."""
        if node != self._me:
            self.start(self._send_alone(address))

    @asynccontextmanager
    async def connected(self, node: str, address: str) -> AsyncGenerator[Notice]:
        """Prepare a notice to one broker, over a connection that is opened meanwhile."""
        client = self._dial(address) if node != self._me else None
        if client is not None:
            await client.start()
        try:
            yield Notice(self, client)
        finally:
            if client is not None:
                self.start(client.close())

    async def close(self) -> None:
        """Wait for the notices that are being sent."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def start(self, run: Coroutine[None, None, None]) -> None:
        """Run something in the background."""
        task = asyncio.get_running_loop().create_task(run)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _dial(self, address: str) -> OpClient | None:
        try:
            return self._brokers.dial(address)
        except ValueError:
            return None

    async def _send_alone(self, address: str) -> None:
        client = self._dial(address)
        if client is None:
            return
        await client.start()
        try:
            await _send(client, LookAtShards())
        finally:
            await client.close()


class Notice:
    """One notice; see `Notices.connected`."""

    def __init__(self, notices: Notices, client: OpClient | None) -> None:
        self._notices = notices
        self._client = client

    def send(self, offered: int, trace: TraceContext | None) -> None:
        """Offer a shard that this broker has just given up."""
        if self._client is not None:
            self._notices.start(_send(self._client, LookAtShards(offered), trace))


async def _send(client: OpClient, op: LookAtShards, trace: TraceContext | None = None) -> None:
    try:
        await client.call(op, org_id=1, deadline=SECONDS, trace=trace)
    except MeshError as e:
        log.debug("a broker was not asked to check the cluster: %s", e)
