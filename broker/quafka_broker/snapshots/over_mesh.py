"""A cut of the log of a broker elsewhere, and its files, read over the mesh.

A snapshot is made in a plain thread; the mesh has an event loop in one of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Coroutine, Generator, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from quafka_broker.snapshots.pins import Cut, cut_from
from quafka_broker.snapshots.source import Source, chunks
from quafka_broker.wal.log import SegmentCut
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.errors import MeshError, OpFailedError
from quafka_mesh_ops.identity import Identity, NodeId
from quafka_mesh_ops.parts import Op
from quafka_mesh_ops.settings import split_address
from quafka_mesh_ops.snapshot_ops import (
    PinSnapshot,
    PinSnapshotResp,
    ReadPinned,
    ReadPinnedResp,
    UnpinSnapshot,
)
from quafka_mesh_ops.tracing import Tracer

_ORG = 1  # the ops are about the whole log
_CONNECT_SECONDS = 10.0
_PIN_SECONDS = 60.0
_READ_SECONDS = 30.0
_READS_AHEAD = 8
_TRIES = 5

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Remote:
    """A broker elsewhere, and who we are to it."""

    address: str
    node_key: Path
    broker_id: NodeId


@contextmanager
def remote_cut(remote: Remote) -> Generator[tuple[Cut, Source]]:
    """A cut of a broker's log, and its files for as long as they are needed. Blocks.

    Raises:
        StartupError: there is no such key.
        OSError: the broker cannot be reached, or does not do it.
        Malformed: the broker is of another version.
    """
    host, port = split_address(remote.address)
    identity = Identity.load(remote.node_key)
    with _loop() as loop:
        client = MeshClient(host, port, identity, {remote.broker_id}, Tracer())
        link = _Link(loop, client, remote.address)
        link.run(client.start())
        try:
            if not link.run(client.wait_connected(_CONNECT_SECONDS)):
                raise OSError(
                    f"no connection to the broker at {remote.address}; are its address and node "
                    f"id right, and is {identity.node_id} on its allow-list?"
                )
            pinned = cast(PinSnapshotResp, link.ask(PinSnapshot(), _PIN_SECONDS))
            try:
                yield cut_from(bytes(pinned.about)), _RemoteFiles(link, pinned.pin)
            finally:
                with suppress(OSError):  # its lease ends by itself
                    link.ask(UnpinSnapshot(pinned.pin), _READ_SECONDS)
        finally:
            link.run(client.close())


@contextmanager
def _loop() -> Generator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="snapshot-mesh", daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class _Link:
    """Ops to the broker, asked from a thread without an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, client: MeshClient, address: str) -> None:
        self._loop = loop
        self._client = client
        self._address = address

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for it."""
        return self.begin(work).result()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Let it run."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def ask(self, op: Op, seconds: float) -> Any:
        """The answer to an op. Raises OSError."""
        return self.run(self.asked(op, seconds))

    async def asked(self, op: Op, seconds: float) -> Any:
        """The same, on the loop. None of the ops does harm when it is done twice."""
        for left in reversed(range(_TRIES)):
            try:
                return await self._client.call(op, org_id=_ORG, deadline=seconds)
            except OpFailedError as e:
                raise OSError(
                    f"the broker at {self._address} answered error {e.error_code}; its log says why"
                ) from e
            except MeshError as e:
                if not left:
                    raise OSError(f"the broker at {self._address} is away: {e}") from e
        raise AssertionError


class _RemoteFiles:
    """What a pin of a broker elsewhere holds."""

    def __init__(self, link: _Link, pin: str) -> None:
        self._link = link
        self._pin = pin

    def log_path(self, number: int) -> Path | None:
        return None

    def index_path(self, number: int) -> Path | None:
        return None

    def zones(self, segment: SegmentCut) -> bytes | None:
        return None

    def zones_path(self, segment: SegmentCut) -> Path | None:
        return None

    def log(self, number: int, at: int, size: int) -> bytes:
        return b"".join(self.log_chunks(number, at, size))

    def index(self, number: int, at: int, size: int) -> bytes:
        return b"".join(self._read(number, index=True, at=at, size=size))

    def log_chunks(self, number: int, at: int, size: int) -> Iterator[bytes]:
        return self._read(number, index=False, at=at, size=size)

    def _read(self, number: int, *, index: bool, at: int, size: int) -> Iterator[bytes]:
        """Pieces in order, with some of the next on their way already."""
        under_way: deque[Future[bytes]] = deque()
        try:
            for start, some in chunks(at, size):
                op = ReadPinned(self._pin, number, index, start, some)
                under_way.append(self._link.begin(self._piece(op)))
                if len(under_way) == _READS_AHEAD:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:
            for read in under_way:
                read.cancel()

    async def _piece(self, op: ReadPinned) -> bytes:
        answer = cast(ReadPinnedResp, await self._link.asked(op, _READ_SECONDS))
        if len(answer.data) != op.size:
            raise OSError(f"segment {op.segment} is cut short at the broker")
        return bytes(answer.data)
