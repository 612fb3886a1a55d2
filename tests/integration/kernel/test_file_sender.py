"""Responses with slices of files, over real sockets."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from quafka_gateway.edge import file_sender
from quafka_gateway.edge.file_sender import TURN_BYTES, Turn
from quafka_gateway.edge.progress import RequiredProgress
from quafka_gateway.edge.response_writer import ResponseWriter
from quafka_gateway.fetch.file_slice import FileSlice, LogFile, as_batches, in_memory
from quafka_gateway.memory import ResponseMemory
from quafka_gateway.stats import GatewayStats
from tests.support.org_turns import Alone, Waiting

MIB = 1 << 20


class Served(asyncio.Protocol):
    """A connection that writes one response when it is made."""

    def __init__(self, turn: Turn | None = None) -> None:
        self.memory = ResponseMemory(64 * MIB).of(1)
        self.went_on = 0
        self.turn: Turn = turn or Alone()
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.writer = ResponseWriter(
            transport,
            self.memory,
            GatewayStats(),
            RequiredProgress(60, 1_000),
            self._went_on,
            self.turn,
        )

    def _went_on(self) -> None:
        self.went_on += 1

    def pause_writing(self) -> None:
        self.writer.pause()

    def resume_writing(self) -> None:
        self.writer.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self.writer.close()
        self.lost.set_result(None)


@asynccontextmanager
async def connected(
    sndbuf: int = 0, turn: Turn | None = None
) -> AsyncIterator[tuple[Served, socket.socket]]:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        accepted, _ = listening.accept()
    if sndbuf:
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, sndbuf)
    client.setblocking(False)
    _, served = await loop.connect_accepted_socket(lambda: Served(turn), accepted)
    try:
        yield served, client
    finally:
        client.close()
        served.transport.abort()
        await served.lost


async def read(client: socket.socket, size: int) -> bytes:
    found = bytearray()
    async with asyncio.timeout(10):
        while len(found) < size:
            chunk = await asyncio.get_running_loop().sock_recv(client, MIB)
            if not chunk:
                break
            found += chunk
    return bytes(found)


def file_of(tmp_path: Path, size: int) -> tuple[LogFile, bytes]:
    content = os.urandom(size)
    path = tmp_path / "file"
    path.write_bytes(content)
    return LogFile("key", os.open(path, os.O_RDONLY)), content


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_pieces_of_memory_and_of_files_leave_in_order(tmp_path: Path) -> None:
    file, content = file_of(tmp_path, 6 * MIB)
    slices = as_batches([FileSlice(file, 5, 3 * MIB, 0, 1), FileSlice(file, 4 * MIB, 7, 1, 2)])
    expected = b"head" + content[5 : 5 + 3 * MIB] + content[4 * MIB : 4 * MIB + 7] + b"tail"
    async with connected() as (served, client):
        served.writer.write([b"head", *slices, b"tail"])
        assert served.memory.held < 100
        assert await read(client, len(expected)) == expected
        assert served.writer.ready
        assert served.writer.unread == served.writer.unread_in_memory == 0
        assert served.memory.held == 0
        served.writer.write([*slices])
        assert await read(client, 3 * MIB + 7) == expected[4:-4]
    file.close()


async def test_an_org_that_shares_the_loop_sends_a_part_in_each_turn(tmp_path: Path) -> None:
    file, content = file_of(tmp_path, 4 * TURN_BYTES)
    turn = Waiting()
    async with connected(turn=turn) as (served, client):
        served.writer.write([*as_batches([FileSlice(file, 0, 4 * TURN_BYTES, 0, 1)])])
        unread = served.writer.unread
        assert unread == 3 * TURN_BYTES
        reading = asyncio.create_task(read(client, 4 * TURN_BYTES))
        async with asyncio.timeout(10):
            while served.writer.unread:
                while turn.work:
                    turn.work.popleft()()
                    assert unread - TURN_BYTES <= served.writer.unread <= unread
                    unread = served.writer.unread
                await asyncio.sleep(0)
        assert await reading == content
    file.close()


async def test_a_client_that_does_not_read_holds_no_memory_and_is_detected(tmp_path: Path) -> None:
    file, content = file_of(tmp_path, 8 * MIB)
    async with connected(sndbuf=100_000) as (served, client):
        served.writer.write([b"head", *as_batches([FileSlice(file, 0, 8 * MIB, 0, 1)])])
        await asyncio.sleep(0.05)
        writer = served.writer
        assert writer.unread > MIB
        assert writer.unread_in_memory == served.memory.held == 0
        assert writer.seconds_stuck(1_000.0) == 0
        assert writer.seconds_stuck(1_030.0) == 30
        assert await read(client, 4 + 8 * MIB) == b"head" + content
        assert served.went_on > 0
        assert writer.unread == 0
    file.close()


async def test_long_responses_take_turns_with_other_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_sender, "_CALL_BYTES", 1_000)
    monkeypatch.setattr(file_sender, "_TURN_BYTES", 10_000)
    file, content = file_of(tmp_path, 500_000)
    async with connected() as (served, client):
        served.writer.write(as_batches([FileSlice(file, 0, 500_000, 0, 1)]))
        assert served.writer.unread >= 490_000
        assert await read(client, 500_000) == content
        assert served.went_on >= 49
    file.close()


async def test_a_file_that_is_cut_short_closes_the_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, content = file_of(tmp_path, 2 * MIB)
    async with connected() as (served, client):
        served.writer.write([b"head", *as_batches([FileSlice(file, MIB, 2 * MIB, 0, 1)])])
        found = b""
        with suppress(ConnectionResetError):
            found = await read(client, 4 + 2 * MIB)
        assert (b"head" + content[MIB:]).startswith(found)
        await asyncio.wait_for(asyncio.shield(served.lost), 30)
        assert "ends before position" in caplog.text
    file.close()


async def test_a_revoked_file_ends_a_response_in_the_middle(tmp_path: Path) -> None:
    file, _ = file_of(tmp_path, 8 * MIB)
    async with connected(sndbuf=100_000) as (served, client):
        served.writer.write(as_batches([FileSlice(file, 0, 8 * MIB, 0, 1)]))
        await asyncio.sleep(0.01)
        file.close()
        received = 0
        with suppress(ConnectionResetError):
            received = len(await read(client, 8 * MIB))
        assert received < 8 * MIB
        await asyncio.wait_for(asyncio.shield(served.lost), 30)
        assert served.memory.held == 0


async def test_a_client_that_goes_leaves_nothing_behind(tmp_path: Path) -> None:
    file, _ = file_of(tmp_path, 8 * MIB)
    before = open_files()
    for _ in range(5):
        async with connected(sndbuf=100_000) as (served, client):
            served.writer.write(as_batches([FileSlice(file, 0, 8 * MIB, 0, 1)]))
            await asyncio.sleep(0.01)
            client.close()
            await asyncio.wait_for(asyncio.shield(served.lost), 30)
    await asyncio.sleep(0)
    assert open_files() == before
    file.close()


async def test_a_cold_file_is_read_by_a_thread_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, content = file_of(tmp_path, 3 * MIB)
    asked: list[int] = []

    def is_cached(self: LogFile, position: int, size: int) -> bool:
        asked.append(position)
        return False

    monkeypatch.setattr(LogFile, "is_cached", is_cached)
    async with connected() as (served, client):
        served.writer.write(as_batches([FileSlice(file, 0, 3 * MIB, 0, 1)]))
        assert served.writer.unread == 3 * MIB
        assert await read(client, 3 * MIB) == content
    assert asked == [0]
    file.close()


async def test_a_slice_that_was_in_memory_a_moment_ago_is_not_looked_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, content = file_of(tmp_path, MIB)
    asked: list[int] = []
    is_cached = LogFile.is_cached

    def counted(self: LogFile, position: int, size: int) -> bool:
        asked.append(position)
        return is_cached(self, position, size)

    monkeypatch.setattr(LogFile, "is_cached", counted)
    async with connected() as (served, client):
        for seconds, expected in ((60.0, 1), (0.0, 1 + 3)):
            monkeypatch.setattr(file_sender, "_WARM_SECONDS", seconds)
            slices = as_batches([FileSlice(file, 0, MIB, 0, 1)])
            for _ in range(3):
                served.writer.write([*slices])
                assert await read(client, MIB) == content
            assert len(asked) == expected
    file.close()


async def test_a_client_that_goes_while_a_thread_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, _ = file_of(tmp_path, 3 * MIB)
    monkeypatch.setattr(LogFile, "is_cached", lambda *_: False)
    async with connected() as (served, client):
        served.writer.write(as_batches([FileSlice(file, 0, 3 * MIB, 0, 1)]))
        client.close()
        served.transport.abort()
        await served.lost
    await asyncio.sleep(0.05)
    assert served.went_on == 0
    file.close()


def test_a_descriptor_in_use_is_closed_after_its_last_use(tmp_path: Path) -> None:
    file, content = file_of(tmp_path, 100)
    with file.used() as fd:
        file.close()
        assert os.pread(fd, 100, 0) == content
    with pytest.raises(OSError):
        os.fstat(fd)
    with pytest.raises(OSError):
        file.read(0, 1)
    file.close()


def test_batches_are_read_into_memory_or_not_at_all(tmp_path: Path) -> None:
    file, content = file_of(tmp_path, 100)
    batches = as_batches([FileSlice(file, 10, 20, 0, 1)])
    assert in_memory([b"first", *batches]) == [b"first", content[10:30]]
    assert file.is_cached(0, 100)
    assert bytes(file.read_cached(50, 50) or b"") == content[50:]
    assert file.read_cached(50, 51) is None
    with pytest.raises(OSError, match="ends before"):
        in_memory(as_batches([FileSlice(file, 90, 20, 0, 1)]))
    with pytest.raises(TypeError):
        b"".join(batches)  # it never passes for its bytes
    file.close()
