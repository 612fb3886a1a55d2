"""Sends ops to a remote broker from a plain thread: the mesh's event loop has its own thread."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from quafka_loop import threads
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.errors import MeshError, OpFailedError
from quafka_mesh_ops.ops.base import Op, R
from quafka_proto.errors import ErrorCode

WHOLE_LOG_ORG = 1
"""The org in the envelope of ops about the whole log."""
_TRIES = 5
_REASONS: dict[int, str] = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
    "this node's entry on its allow-list needs may=snapshot, for every org or, with --org, for "
    "that one",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED:
    "this node holds as many cuts of the log as snapshot.pins.max allows",
    ErrorCode.RESOURCE_NOT_FOUND:
    "the cut has ended (snapshot.pin.lease.ms, snapshot.pin.max.ms); begin again",
}  # fmt: skip

T = TypeVar("T")


class OpRefusedError(OSError):
    """The broker answered with an error code."""

    def __init__(self, address: str, code: int) -> None:
        reason = _REASONS.get(code, "see its log")
        super().__init__(f"the broker at {address} answered {ErrorCode.name_of(code)}: {reason}")
        self.code = code


class MeshLink:
    """A mesh client for threads without an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, client: MeshClient, address: str) -> None:
        self._loop = loop
        self._client = client
        self._address = address

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop, and wait for its result."""
        return self.begin(work).result()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, op: Op[R], seconds: float, org: int = WHOLE_LOG_ORG) -> R:
        """Call an op of the broker, and wait for its answer. Raises OSError."""
        return self.run(self.call_on_loop(op, seconds, org))

    async def call_on_loop(self, op: Op[R], seconds: float, org: int = WHOLE_LOG_ORG) -> R:
        """Call an op, with retries after failures of the mesh: all of these ops are idempotent.

        Raises:
            OpRefusedError: the broker answered with an error code.
            OSError: the broker is unavailable.
        """
        for left in reversed(range(_TRIES)):
            try:
                return await self._client.call(op, org_id=org, deadline=seconds)
            except OpFailedError as e:
                raise OpRefusedError(self._address, e.error_code) from e
            except MeshError as e:
                if not left:
                    raise OSError(f"the broker at {self._address} is unavailable: {e}") from e
        raise AssertionError


@contextmanager
def loop_in_thread() -> Generator[asyncio.AbstractEventLoop]:
    """An event loop that runs in a thread until the end of the block."""
    loop = asyncio.new_event_loop()
    thread = threads.Thread(target=loop.run_forever, name="snapshot-mesh", daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
