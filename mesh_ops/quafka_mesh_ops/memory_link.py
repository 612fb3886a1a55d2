"""The gateway's end of shared memory: made for each connection whose ops are large."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable
from typing import Any, Protocol

from quafka_mesh_ops.broker_session import BrokerSession
from quafka_mesh_ops.connector import BrokerConnector
from quafka_mesh_ops.errors import MeshError
from quafka_mesh_ops.memory import handover
from quafka_mesh_ops.memory.shared import SharedMemory
from quafka_mesh_ops.ops.memory import OpenMemory, OpenMemoryResp

logger = logging.getLogger("quafka.mesh.client")

_OPEN_SECONDS = 4.0
"""Less than a broker's offer lasts (`offer.OFFER_SECONDS`)."""
_AGAIN_SECONDS = 30.0
_TRIM_SECONDS = 10.0


class MemoryOpSender(Protocol):
    """Sends an op, as MeshClient.call."""

    def __call__(
        self, op: OpenMemory, *, org_id: int, deadline: float
    ) -> Awaitable[OpenMemoryResp]:
        """Return the answer. Raises MeshError."""
        ...


class MemoryLink:
    """Shares memory with the broker once a connection has had a large op to send.

    A broker on another host, of another user or of an earlier version takes none, and large ops
    travel in packets.
    """

    def __init__(self, connector: BrokerConnector, call: MemoryOpSender) -> None:
        self._connector = connector
        self._call = call
        self._memory: SharedMemory | None = None
        self._placed_before = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def shared(self) -> bool:
        """Whether large ops lie in memory now."""
        return self._memory is not None

    @property
    def placed(self) -> int:
        """Bytes of frames that lay in memory."""
        return self._placed_before + (self._memory.placed if self._memory else 0)

    def start(self) -> None:
        """Share memory when it is worthwhile, in the background."""
        self._task = asyncio.get_running_loop().create_task(self._keep_shared())
        self._task.add_done_callback(_log_failure)

    async def close(self) -> None:
        """Release the memory."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _keep_shared(self) -> None:
        while True:
            session = await self._connector.next_session()
            either: list[asyncio.Future[Any]] = [session.large, session.over]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            while not session.over.done():
                await self._share(session)
                await asyncio.wait([session.over], timeout=_AGAIN_SECONDS)

    async def _share(self, session: BrokerSession) -> None:
        """Share memory until the session ends, if the broker takes it."""
        try:
            memory = SharedMemory()
        except (AttributeError, OSError) as e:  # AttributeError: not on Linux
            logger.debug("large ops travel in packets: no memory to share: %s", e)
            return
        try:
            if await self._hand_over(session, memory):
                logger.info("large ops for node %s lie in shared memory", session.peer[:16])
                self._memory = session.memory = memory
                while not session.over.done():
                    await asyncio.wait([session.over], timeout=_TRIM_SECONDS)
                    memory.trim()
        except (MeshError, OSError, TimeoutError) as e:  # mostly a broker on another host
            logger.debug("large ops for node %s travel in packets: %s", session.peer[:16], e)
        finally:
            session.memory = self._memory = None
            self._placed_before += memory.placed
            memory.close()

    async def _hand_over(self, session: BrokerSession, memory: SharedMemory) -> bool:
        """Have the broker open the memory; False: it takes none.

        Raises:
            MeshError, OSError, TimeoutError: it cannot.
        """
        offer = await self._call(OpenMemory(), org_id=1, deadline=_OPEN_SECONDS)
        if not offer.name or self._connector.session is not session:
            return False
        connection = handover.connect(offer.name)
        if connection is None:
            return False
        try:
            fd = memory.read_only()
            try:
                handover.hand_over(connection, offer.token, fd)
            finally:
                os.close(fd)
            async with asyncio.timeout(_OPEN_SECONDS):
                return await _answer(connection)
        finally:
            connection.close()


async def _answer(connection: socket.socket) -> bool:
    """Whether the broker has taken the memory. Raises OSError."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(connection, readable.set)
    try:
        while (taken := handover.is_taken(connection)) is None:
            readable.clear()
            await readable.wait()
        return taken
    finally:
        loop.remove_reader(connection)


def _log_failure(task: asyncio.Task[None]) -> None:
    """Log the end of the task, which only a bug causes; large ops travel in packets after it."""
    if not task.cancelled() and task.exception() is not None:
        logger.critical("no memory will be shared any more", exc_info=task.exception())
