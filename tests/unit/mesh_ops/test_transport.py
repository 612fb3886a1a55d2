"""The transport's parts: UDP bursts, congestion, the burst cut, limited log lines."""

from __future__ import annotations

import logging
from typing import cast

import pytest
from aioquic.quic.packet import QuicPacketType
from aioquic.quic.packet_builder import QuicSentPacket
from aioquic.tls import Epoch

from quafka_mesh_ops.transport.congestion import (
    WINDOW,
    MeshCongestionControl,
)
from quafka_mesh_ops.transport.connection import QuicSocketConnection
from quafka_mesh_ops.transport.log_limit import LimitedLog
from quafka_mesh_ops.transport.replies import BulkReplies


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
    replies = BulkReplies(cast(QuicSocketConnection, streams))
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
