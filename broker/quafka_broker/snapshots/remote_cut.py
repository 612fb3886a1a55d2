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
from itertools import chain
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any, TypeVar

from quafka_broker.snapshots.cut import Cut, decode_cut
from quafka_broker.snapshots.cut_files import CutFiles, chunks, tail_of
from quafka_broker.wal.log import SegmentCut
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.errors import MeshError, OpFailedError
from quafka_mesh_ops.identity import Identity, NodeId
from quafka_mesh_ops.ops.base import Op, R
from quafka_mesh_ops.ops.snapshots import (
    MAX_READ,
    PinOrg,
    PinSnapshot,
    ReadOrgPinned,
    ReadOrgPinnedResp,
    ReadPinned,
    UnpinOrg,
    UnpinSnapshot,
)
from quafka_mesh_ops.settings import split_address
from quafka_proto.errors import ErrorCode
from quafka_proto.log_format import (
    ENTRY_HEADER_SIZE,
    FILE_HEADER_SIZE,
    INDEX_ROW_SIZE,
    LOG_MAGIC,
    REWRITTEN,
    decode_row,
    encode_file_header,
    encode_row,
)
from quafka_telemetry.tracing import Tracer

_ORG = 1  # the ops are about the whole log
_CONNECT_SECONDS = 10.0
_PIN_SECONDS = 60.0
_READ_SECONDS = 30.0
_READS_AHEAD = 8
_TRIES = 5
_SPOOL_BYTES = 16 << 20
_SPOOL_ROWS = 8_192
_REASONS: dict[int, str] = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
    "this node's entry on its allow-list needs may=snapshot, for every org or, with --org, for "
    "that one",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED:
    "this node holds as many cuts of the log as snapshot.pins.max lets it",
    ErrorCode.RESOURCE_NOT_FOUND:
    "the cut has ended (snapshot.pin.lease.ms, snapshot.pin.max.ms); begin again",
}  # fmt: skip

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Remote:
    """A broker elsewhere, and who we are to it."""

    address: str
    node_key: Path
    broker_id: NodeId


class _RefusedError(OSError):
    """The broker answered with an error code."""

    def __init__(self, address: str, code: int) -> None:
        why = _REASONS.get(code, "its log says why")
        super().__init__(f"the broker at {address} answered {ErrorCode.name_of(code)}: {why}")
        self.code = code


@contextmanager
def remote_cut(remote: Remote, org: int | None = None) -> Generator[tuple[Cut, CutFiles]]:
    """A cut of a broker's log, and its files for as long as they are needed. Blocks.

    Of an `org` only its entries are read. Brokers before that had an op for it give the whole log.

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
            with _pinned(link, org) as found:
                yield found
        finally:
            link.run(client.close())


@contextmanager
def _pinned(link: _Link, org: int | None) -> Generator[tuple[Cut, CutFiles]]:
    """Have a cut taken, and let go of it in the end."""
    unpin: type[UnpinSnapshot | UnpinOrg] = UnpinSnapshot
    if org is None:
        pinned = link.ask(PinSnapshot(), _PIN_SECONDS)
        source: CutFiles = _RemoteFiles(link, pinned.pin)
    else:
        link.org = org
        try:
            pinned = link.ask(PinOrg(), _PIN_SECONDS)
            source, unpin = _RemoteOrg(link, pinned.pin), UnpinOrg
        except _RefusedError as e:
            if e.code != ErrorCode.UNSUPPORTED_VERSION:
                raise
            with _pinned(link, None) as found:
                yield found
            return
    try:
        yield decode_cut(bytes(pinned.about)), source
    finally:
        with suppress(OSError):  # its lease ends by itself
            link.ask(unpin(pinned.pin), _READ_SECONDS)


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
        self.org = _ORG

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for it."""
        return self.begin(work).result()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Let it run."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def ask(self, op: Op[R], seconds: float) -> R:
        """The answer to an op. Raises OSError."""
        return self.run(self.asked(op, seconds))

    async def asked(self, op: Op[R], seconds: float) -> R:
        """The same, on the loop. None of the ops does harm when it is done twice."""
        for left in reversed(range(_TRIES)):
            try:
                return await self._client.call(op, org_id=self.org, deadline=seconds)
            except OpFailedError as e:
                raise _RefusedError(self._address, e.error_code) from e
            except MeshError as e:
                if not left:
                    raise OSError(f"the broker at {self._address} is away: {e}") from e
        raise AssertionError


class _Remote:
    """A pin of a broker elsewhere: it has no files here."""

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


class _RemoteFiles(_Remote):
    """What a pin of a broker elsewhere holds."""

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

    def tail(self, number: int, rows: int) -> bytes:
        return tail_of(self, number, rows)

    async def _piece(self, op: ReadPinned) -> bytes:
        answer = await self._link.asked(op, _READ_SECONDS)
        if len(answer.data) != op.size:
            raise OSError(f"segment {op.segment} is cut short at the broker")
        return bytes(answer.data)


class _RemoteOrg(_Remote):
    """One org's entries of what a pin of a broker elsewhere holds. There are no raw files."""

    def log(self, number: int, at: int, size: int) -> bytes:
        raise OSError("the broker gives one org's entries only")

    def index(self, number: int, at: int, size: int) -> bytes:
        raise OSError("the broker gives one org's entries only")

    def log_chunks(self, number: int, at: int, size: int) -> Iterator[bytes]:
        raise OSError("the broker gives one org's entries only")

    def tail(self, number: int, rows: int) -> bytes:
        return bytes(self._read(ReadOrgPinned(self._pin, number, rows, rows, 0, 0)).tail)

    def of_org(self, segment: SegmentCut, first_row: int) -> _RemoteOrgPart:
        return _RemoteOrgPart(segment, self._answers(segment, first_row))

    def _answers(self, segment: SegmentCut, first_row: int) -> Iterator[ReadOrgPinnedResp]:
        row, skip = first_row, 0
        while row < segment.rows:
            op = ReadOrgPinned(self._pin, segment.number, row, segment.rows, skip, MAX_READ)
            answer = self._read(op)
            if (answer.next_row, answer.next_skip) <= (row, skip):
                raise OSError(f"segment {segment.number} does not go on at the broker")
            row, skip = answer.next_row, answer.next_skip
            yield answer

    def _read(self, op: ReadOrgPinned) -> ReadOrgPinnedResp:
        return self._link.ask(op, _READ_SECONDS)


class _RemoteOrgPart:
    """An OrgEntries that is read from the broker once; its index rows wait in a temporary file."""

    def __init__(self, segment: SegmentCut, answers: Iterator[ReadOrgPinnedResp]) -> None:
        self._segment = segment
        self._answers = answers
        self._first = next((answer for answer in answers if answer.rows), None)
        self._rows = SpooledTemporaryFile(_SPOOL_BYTES)  # noqa: SIM115 - closed by close
        self.rows = 0
        self.size = FILE_HEADER_SIZE

    @property
    def is_empty(self) -> bool:
        return self._first is None

    @property
    def expected_size(self) -> int | None:
        return None

    def log(self) -> Iterator[bytes]:
        segment = self._segment
        yield encode_file_header(LOG_MAGIC, segment.number, segment.salt, REWRITTEN)
        received = FILE_HEADER_SIZE
        assert self._first is not None
        for answer in chain([self._first], self._answers):
            data = bytes(answer.rows)
            for at in range(0, len(data), INDEX_ROW_SIZE):
                row = decode_row(data, at)
                self._rows.write(encode_row(row._replace(position=self.size)))
                self.size += ENTRY_HEADER_SIZE + row.length
                self.rows += 1
            received += len(answer.entries)
            yield bytes(answer.entries)
        if received != self.size:
            raise OSError(f"segment {segment.number} is cut short at the broker")

    def index(self) -> Iterator[bytes]:
        self._rows.seek(0)
        while some := self._rows.read(_SPOOL_ROWS * INDEX_ROW_SIZE):
            yield some

    def close(self) -> None:
        self._rows.close()
