"""The transport's parts: UDP bursts, congestion, the burst cut, limited log lines."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import pytest
from aioquic.quic.packet import QuicPacketType
from aioquic.quic.packet_builder import QuicSentPacket
from aioquic.tls import Epoch

from quafka_mesh_ops.transport.congestion import (
    WINDOW,
    MeshCongestionControl,
)
from quafka_mesh_ops.transport.connection import Connection
from quafka_mesh_ops.transport.log_limit import LimitedLog
from quafka_mesh_ops.transport.replies import BulkReplies
from quafka_mesh_ops.transport.udp import UdpSocket, bind_udp


class Ends:
    """Two UDP sockets; `got`: the datagrams that arrived at the second."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.errors: list[OSError] = []
        self.blamed: list[Any] = []
        self.writable = 0
        self.receiver = UdpSocket(
            bind_udp("127.0.0.1", 0), self._take, lambda: None, self._note_error
        )
        self.sock = SlowSocket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sender = UdpSocket(self.sock, self._take, self._note_writable, self._note_error)

    def _take(self, datagrams: list[bytes], address: Any) -> None:
        self.got += datagrams

    def _note_error(self, error: OSError, address: Any) -> None:
        self.errors.append(error)
        self.blamed.append(address)

    def _note_writable(self) -> None:
        self.writable += 1

    def send(self, datagrams: Sequence[bytes]) -> None:
        self.sender.send([(d, self.receiver.address) for d in datagrams])

    async def until(self, count: int) -> None:
        for _ in range(400):
            if len(self.got) >= count:
                return
            await asyncio.sleep(0.005)
        raise AssertionError(f"only {len(self.got)} of {count} datagrams")


class SlowSocket(socket.socket):
    """Fails the next sends with these errors (0: lets one through)."""

    def fail_next(self, *errors: int) -> None:
        self._errors = list(errors)

    def sendmsg(self, *args: Any) -> int:
        errors = getattr(self, "_errors", [])
        if errors:
            code = errors.pop(0)
            if code:
                raise OSError(code, "injected")
        return super().sendmsg(*args)


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    made = Ends()
    yield made
    made.sender.close()
    made.receiver.close()
    made.receiver.close()


BURSTS = [
    [b"a"],
    [b"a" * 1200] * 3 + [b"b" * 7],
    [b"a" * 1452] * 100,
    [b"a" * 16000] * 9,
    [b"a", b"bb", b"ccc", b"dd", b"dd", b"e", b"ff"],
    [bytes([i]) * (1 + i) for i in range(200)],
    [b"x" * 60000, b"y" * 60000],
]


@pytest.mark.parametrize("datagrams", BURSTS)
@pytest.mark.parametrize("offload", [True, False])
async def test_datagrams_keep_their_edges_and_order(
    ends: Ends, datagrams: list[bytes], offload: bool
) -> None:
    if not offload:
        ends.sender._gso = False
    ends.send(datagrams)
    await ends.until(len(datagrams))
    assert ends.got == datagrams


async def test_what_the_kernel_does_not_take_now_is_sent_later(ends: Ends) -> None:
    ends.sock.fail_next(errno.EAGAIN)
    ends.send([b"1" * 100, b"2" * 200])
    assert ends.sender.blocked
    ends.send([b"3"])
    await ends.until(3)
    assert ends.got == [b"1" * 100, b"2" * 200, b"3"]
    assert ends.writable == 1
    assert not ends.sender.blocked


async def test_without_segmentation_offload_it_goes_on_without(ends: Ends) -> None:
    ends.sock.fail_next(errno.EIO)
    ends.send([b"a" * 500] * 5)
    await ends.until(5)
    assert ends.got == [b"a" * 500] * 5
    assert not ends.sender._gso
    ends.got.clear()
    ends.sock.fail_next(0, errno.EAGAIN)
    ends.send([b"b" * 500, b"c" * 500, b"d" * 500])
    await ends.until(3)
    await asyncio.sleep(0.01)
    assert ends.got == [b"b" * 500, b"c" * 500, b"d" * 500]


async def test_path_errors_are_reported_and_cost_only_their_burst(ends: Ends) -> None:
    ends.sock.fail_next(errno.EMSGSIZE)
    ends.send([b"large", b"small"])
    ends.send([b"next"])
    await ends.until(1)
    assert [e.errno for e in ends.errors] == [errno.EMSGSIZE]
    assert ends.got == [b"next"]


async def test_a_port_that_is_closed_is_named_and_costs_others_nothing(ends: Ends) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
        gone.bind(("127.0.0.1", 0))
        closed = gone.getsockname()
    to = ends.receiver.address
    ends.sender.send([(b"1", to), (b"x", closed), (b"2", to), (b"x", closed), (b"3", to)])
    await ends.until(3)
    async with asyncio.timeout(20):
        while len(ends.errors) < 2:
            await asyncio.sleep(0.005)
    assert [(e.errno, who) for e, who in zip(ends.errors, ends.blamed, strict=True)] == [
        (errno.ECONNREFUSED, closed)
    ] * 2
    assert ends.got == [b"1", b"2", b"3"]


async def test_a_closed_socket_sends_nothing(ends: Ends) -> None:
    ends.sender.close()
    ends.send([b"x"])
    assert not ends.sender.blocked


class StreamsOnly:
    """The part of a connection that BulkReplies uses."""

    def __init__(self) -> None:
        self.written: dict[int, int] = {}
        self.sent: set[int] = set()
        self.delivered: set[int] = set()
        self.reset: list[int] = []

    def open_stream(self, *, unidirectional: bool) -> int:
        return 3 + 4 * len(self.written)

    def write(self, stream_id: int, pieces: list[bytes], *, end_stream: bool) -> None:
        self.written[stream_id] = sum(map(len, pieces))

    def is_sent(self, stream_id: int) -> bool:
        return stream_id in self.sent

    def is_delivered(self, stream_id: int) -> bool:
        return stream_id in self.delivered

    def reset_stream(self, stream_id: int) -> None:
        self.reset.append(stream_id)


def test_bulk_replies_take_turns() -> None:
    streams = StreamsOnly()
    replies = BulkReplies(cast(Connection, streams))
    for request_id in range(40):
        replies.add(request_id, [bytes(100)])
    assert list(streams.written) == [3, 7, 11]
    assert replies.backlog == 4000
    streams.sent.add(3)
    replies.progress()
    assert list(streams.written) == [3, 7, 11, 15]
    streams.delivered.add(3)
    replies.progress()
    assert replies.backlog == 3900
    replies.drop(1)  # being sent
    replies.drop(30)  # still queued
    replies.drop(30)
    assert streams.reset == [7]
    assert replies.backlog == 3700
    for _ in range(50):  # all is sent, nothing further acknowledged
        streams.sent.update(streams.written)
        replies.progress()
    assert len(streams.written) == 32 + 2
    streams.delivered.update(range(3, 400, 4))
    for _ in range(3):  # the other five, at most three at a time
        replies.progress()
    assert replies.backlog == 0
    assert len(streams.written) == 39


def packet(number: int, sent: float, size: int = 16000) -> QuicSentPacket:
    return QuicSentPacket(
        epoch=Epoch.ONE_RTT,
        in_flight=True,
        is_ack_eliciting=True,
        is_crypto_packet=False,
        packet_number=number,
        packet_type=QuicPacketType.ONE_RTT,
        sent_time=sent,
        sent_bytes=size,
    )


def test_the_window_starts_high_shrinks_once_per_loss_event_and_has_bounds() -> None:
    congestion = MeshCongestionControl(max_datagram_size=16000)
    assert congestion.congestion_window == WINDOW
    for number in range(1000):
        sent = packet(number, 1.0)
        congestion.on_packet_sent(packet=sent)
        congestion.on_packet_acked(now=1.1, packet=sent)
    assert congestion.window == WINDOW
    assert congestion.bytes_in_flight == 0
    lost = [packet(i, 2.0 + i / 100) for i in range(4)]
    for sent in lost:
        congestion.on_packet_sent(packet=sent)
    congestion.on_packets_lost(now=3.0, packets=lost[:2])
    after_one = congestion.window
    congestion.on_packets_lost(now=3.1, packets=lost[2:])
    assert after_one == congestion.window == int(WINDOW * 0.7)
    congestion.on_persistent_congestion()
    assert congestion.window == 4 * 16000


def test_log_lines_are_limited_for_each_reason(caplog: pytest.LogCaptureFixture) -> None:
    now = 10.0
    limited = LimitedLog(logging.getLogger("quafka.mesh.test"), now=lambda: now)
    for _ in range(5):
        limited.warning("a", "first %d", 1)
    limited.warning("b", "other")
    now = 11.5
    limited.warning("a", "first %d", 2)
    assert [r.getMessage() for r in caplog.records] == [
        "first 1",
        "other",
        "first 2 (4 more like this since the last line)",
    ]
    for i in range(1000):
        limited.warning(str(i), "many reasons")
    assert len(limited._last) <= 64
