"""TCP and UDP in memory: what asyncio's own transports and the system's sockets promise."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from quafka_loop import sockets
from tests.support.certificates import Authority
from tests.support.virtual.hub import Hub, Node
from tests.support.virtual.loop import RealResourceError, VirtualLoop
from tests.support.virtual.network import Air, Network, SlowAir
from tests.support.virtual.tcp import WINDOW
from tests.support.virtual.udp import MTU, UdpSocket


def here() -> tuple[Hub, Network]:
    loop = cast("VirtualLoop", asyncio.get_running_loop())
    return loop.hub, loop.net


@asynccontextmanager
async def connected(
    tls: tuple[ssl.SSLContext, ssl.SSLContext] | None = None,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter, Any]]:
    """A client's reader and writer, and the server's end: its reader and writer."""
    accepted: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set_result((reader, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls[0] if tls else None)
    host, port = server.sockets[0].getsockname()
    reader, writer = await asyncio.open_connection(
        host, port, ssl=tls[1] if tls else None, server_hostname="localhost" if tls else None
    )
    end = await accepted
    yield reader, writer, end
    for each in (writer, end[1]):
        each.close()
        await asyncio.gather(each.wait_closed(), return_exceptions=True)
    server.close()


async def test_bytes_arrive_in_order_and_then_the_end() -> None:
    async with connected() as (reader, writer, (theirs, _)):
        writer.writelines([b"one ", b"two "])
        writer.write(b"three")
        writer.write_eof()
        assert await theirs.read() == b"one two three"
        assert theirs.at_eof()
        assert not reader.at_eof(), "the other direction is open"


async def test_who_does_not_read_holds_up_the_sender() -> None:
    async with connected() as (_, writer, (theirs, their_writer)):
        their_writer.transport.pause_reading()
        writer.write(bytes(3 * WINDOW))
        draining = asyncio.create_task(writer.drain())
        await asyncio.sleep(1.0)
        assert not draining.done()
        assert writer.transport.get_write_buffer_size() == 2 * WINDOW
        their_writer.transport.resume_reading()
        assert len(await theirs.readexactly(3 * WINDOW)) == 3 * WINDOW
        await draining


async def test_what_was_sent_before_an_abort_arrives() -> None:
    async with connected() as (_, writer, (theirs, _)):
        writer.write(b"last words")
        writer.transport.abort()
        assert await theirs.read() == b"last words"


async def test_unread_bytes_of_who_goes_reset_the_connection() -> None:
    async with connected() as (reader, writer, (_, their_writer)):
        their_writer.transport.pause_reading()
        writer.write(b"never read")
        await asyncio.sleep(0.1)
        their_writer.transport.abort()
        with pytest.raises(ConnectionResetError):
            await reader.read()


async def test_nobody_listens() -> None:
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", 9)
    async with connected():
        pass
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(OSError, match="Address already in use"):
        await asyncio.start_server(lambda *_: None, "127.0.0.1", port)
    server.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_names() -> None:
    loop = asyncio.get_running_loop()
    assert (await loop.getaddrinfo("localhost", 1))[0][4] == ("127.0.0.1", 1)
    with pytest.raises(socket.gaierror):
        await loop.getaddrinfo("no-such-host", 1)


class _Buffers(asyncio.BufferedProtocol):
    def __init__(self) -> None:
        self.got = b""
        self._buffer = bytearray(3)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.got += self._buffer[:nbytes]


async def test_a_protocol_with_a_buffer_of_its_own() -> None:
    loop, made = asyncio.get_running_loop(), _Buffers()
    server = await loop.create_server(lambda: made, "127.0.0.1", 0)
    transport, _ = await loop.create_connection(asyncio.Protocol, *server.sockets[0].getsockname())
    transport.write(b"ten bytes.")
    await asyncio.sleep(0.1)
    assert made.got == b"ten bytes."
    transport.close()
    server.close()


async def test_tls_and_a_server_that_is_not_trusted(tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(authority.issue("localhost", ("localhost",)))
    client = ssl.create_default_context(cafile=str(authority.file))
    async with connected((server, client)) as (reader, writer, (theirs, their_writer)):
        writer.write(b"question")
        assert await theirs.readexactly(8) == b"question"
        their_writer.write(b"answer")
        assert await reader.readexactly(6) == b"answer"
    with pytest.raises(ssl.SSLCertVerificationError):
        async with connected((server, ssl.create_default_context(cafile=str(stranger.file)))):
            pass


async def test_latency_and_a_cut_network() -> None:
    hub, net = here()

    class Cut(Air):
        is_now = False

        def is_cut(self, source: Node | None, target: Node | None) -> bool:
            return self.is_now

    net.air = SlowAir(0.5)
    async with connected() as (_, writer, (theirs, _)):
        began = hub.now
        writer.write(b"x")
        await theirs.readexactly(1)
        assert hub.now - began == pytest.approx(0.5)
        net.air = cut = Cut()
        cut.is_now = True
        writer.write(b"y")
        hub.call_later(10.0, setattr, cut, "is_now", False)
        began = hub.now
        await theirs.readexactly(1)
        assert 10.0 <= hub.now - began < 11.0


async def test_a_killed_process_closes_its_connections() -> None:
    hub, net = here()
    node = Node("n", "10.0.0.1")
    net.add(node)

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(asyncio.Protocol, "0.0.0.0", 7)
        await server.serve_forever()

    loop = VirtualLoop(hub, net)
    hub.spawn(lambda: loop.run_until_complete(serve()), "server", node)
    await asyncio.sleep(0.1)
    reader, writer = await asyncio.open_connection("10.0.0.1", 7)
    await asyncio.sleep(0.1)
    hub.kill(node)
    net.kill(node)
    assert await reader.read() == b""
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("10.0.0.1", 7)
    writer.close()


async def test_real_sockets_are_refused() -> None:
    loop = asyncio.get_running_loop()
    with socket.socket() as real:
        with pytest.raises(RealResourceError):
            await loop.create_server(asyncio.Protocol, sock=real)
        with pytest.raises(RealResourceError):
            await loop.create_connection(asyncio.Protocol, sock=real)


# --- UDP --------------------------------------------------------------------------------------


def udp(net: Network) -> UdpSocket:
    made = cast("UdpSocket", sockets.socket(socket.AF_INET, socket.SOCK_DGRAM))
    made.bind(("127.0.0.1", 0))
    return made


async def test_one_send_of_segments_is_several_datagrams() -> None:
    _, net = here()
    with udp(net) as sender, udp(net) as receiver:
        segment = (socket.SOL_UDP, 103, struct.pack("=H", 4))
        sender.sendmsg([b"aaaabb", b"bbc"], [segment], 0, receiver.getsockname())
        sender.sendto(b"d", receiver.getsockname())
        await asyncio.sleep(0.01)
        got = [receiver.recvfrom(100) for _ in range(4)]
        assert [data for data, _ in got] == [b"aaaa", b"bbbb", b"c", b"d"]
        assert {source for _, source in got} == {sender.getsockname()}
        with pytest.raises(BlockingIOError):
            receiver.recvfrom(100)


async def test_a_reader_is_called_until_nothing_is_left() -> None:
    _, net = here()
    loop, got = asyncio.get_running_loop(), list[bytes]()
    with udp(net) as sender, udp(net) as receiver:
        loop.add_reader(receiver, lambda: got.append(receiver.recv(100)))
        for number in range(3):
            sender.sendto(b"%d" % number, receiver.getsockname())
        await asyncio.sleep(0.01)
        assert got == [b"0", b"1", b"2"]
        loop.remove_reader(receiver)
        sender.sendto(b"x", receiver.getsockname())
        await asyncio.sleep(0.01)
        assert got == [b"0", b"1", b"2"]


async def test_a_closed_port_is_reported_to_who_wants_to_know() -> None:
    _, net = here()
    with udp(net) as gone:
        closed = gone.getsockname()
    with udp(net) as careless, udp(net) as careful, udp(net) as joined:
        careful.setsockopt(socket.IPPROTO_IP, 11, 1)  # IP_RECVERR
        joined.connect(closed)
        for each in (careless, careful, joined):
            each.sendto(b"x", closed)
        await asyncio.sleep(0.01)
        with pytest.raises(BlockingIOError):
            careless.recv(100)
        _, ((_, kind, value),), _, address = careful.recvmsg(0, 512, socket.MSG_ERRQUEUE)
        assert (kind, struct.unpack_from("=I", value)[0]) == (11, errno.ECONNREFUSED)
        assert address == closed
        with pytest.raises(ConnectionRefusedError):
            joined.recv(100)


async def test_what_is_too_long_for_the_way_is_refused() -> None:
    _, net = here()
    net.add(Node("n", "10.0.0.1"))
    with udp(net) as sender:
        with pytest.raises(OSError, match="Message too long"):
            sender.sendto(bytes(MTU), ("10.0.0.1", 1))
        sender.sendto(bytes(60_000), ("127.0.0.1", 1))


async def test_datagrams_may_be_lost_and_doubled() -> None:
    _, net = here()

    class Odd(Air):
        copies = iter([0, 2, 1])

        def datagram_seconds(
            self, source: Node | None, target: Node | None, size: int
        ) -> list[float]:
            return [0.1] * next(self.copies)

    net.air = Odd()
    with udp(net) as sender, udp(net) as receiver:
        for number in range(3):
            sender.sendto(b"%d" % number, receiver.getsockname())
        await asyncio.sleep(1.0)
        assert [receiver.recv(9) for _ in range(3)] == [b"1", b"1", b"2"]
