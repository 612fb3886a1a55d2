"""Packets in bursts are plain QUIC: either end may be stock, over any path."""

from __future__ import annotations

import logging
import random
from dataclasses import replace
from itertools import product

import aioquic
import pytest
from aioquic._buffer import Buffer
from aioquic.quic.connection import NetworkAddress
from aioquic.quic.packet import QuicFrameType, pull_ack_frame
from aioquic.quic.rangeset import RangeSet
from aioquic.tls import Epoch
from hypothesis import given
from hypothesis import strategies as st

from quafka_mesh_ops.transport.aioquic_adapter import quic as quic_module
from quafka_mesh_ops.transport.aioquic_adapter.batched import BatchedQuic
from quafka_mesh_ops.transport.aioquic_adapter.bulk import BulkBurst
from quafka_mesh_ops.transport.aioquic_adapter.burst import parse_bulk
from quafka_mesh_ops.transport.aioquic_adapter.quic import MeshQuic
from quafka_mesh_ops.transport.aioquic_adapter.quic_class import quic_class
from quafka_mesh_ops.transport.aioquic_adapter.small import SmallPacket, ack_frame
from quafka_mesh_ops.transport.ladder import DatagramLadder
from tests.support.suites import more
from tests.unit.mesh_ops.wire import CLIENT as ADDRESS
from tests.unit.mesh_ops.wire import SERVER, End, Faults, Wire

ENDS = list(product([MeshQuic, BatchedQuic], repeat=2))
NAMES = [f"{client.__name__}-{server.__name__}" for client, server in ENDS]
both_ends = pytest.mark.parametrize(("client", "server"), ENDS, ids=NAMES)
SIZES = [1200, 1452, 8900, 16_000, 60_000]
BAD = Faults(loss=0.03, repeat=0.02, damage=0.01, delay=4)


def blob(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)


def exchange(wire: Wire, sizes: list[int]) -> None:
    """Send each size on its own stream from both ends at once; all must arrive whole."""
    sent: list[tuple[End, int, bytes]] = []
    for one, other in ((wire.client, wire.server), (wire.server, wire.client)):
        for number, size in enumerate(sizes):
            stream = one.quic.get_next_available_stream_id(is_unidirectional=True)
            data = blob(size, number)
            half = size // 3
            one.quic.send_stream_data(stream, data[:half])
            one.quic.send_stream_data(stream, data[half:], end_stream=True)
            sent.append((other, stream, data))
    wire.run(lambda: all(stream in end.ended for end, stream, _ in sent))
    for end, stream, data in sent:
        assert end.received.pop(stream) == data
    assert wire.client.closed is None
    assert wire.server.closed is None


@both_ends
@pytest.mark.parametrize("size", [1200, 60_000, *more(SIZES[1:-1])])
def test_streams_arrive_whole(client: type[MeshQuic], server: type[MeshQuic], size: int) -> None:
    wire = Wire(client, server, size)
    exchange(wire, [0, 1, 100, size - 50, size, size + 1, 3 * size, 400_000, 1_500_000])
    exchange(wire, [70_000] * 20)


@both_ends
@pytest.mark.parametrize("seed", [0, 1, *more(range(2, 6))])
def test_streams_arrive_whole_over_a_bad_path(
    client: type[MeshQuic], server: type[MeshQuic], seed: int
) -> None:
    wire = Wire(client, server, random.Random(seed).choice(SIZES), BAD, seed)
    exchange(wire, [1, 5_000, 50_000, 300_000])
    exchange(wire, [100_000] * 3)


@pytest.mark.long
@both_ends
def test_streams_arrive_whole_while_the_size_changes(
    client: type[MeshQuic], server: type[MeshQuic]
) -> None:
    ladders = DatagramLadder(lambda: 60_000), DatagramLadder(lambda: 60_000)
    wire = Wire(client, server, 1_200, ladders=ladders)
    seen = set()
    for mtu in (65_000, 1_500, 65_000, 1_300, 9_000):
        wire.faults = replace(BAD, mtu=mtu)
        for _ in range(3):
            exchange(wire, [1, 5_000, 150_000])
            seen |= {end.quic.datagram_size for end in (wire.client, wire.server)}
            wire.now += 1.0
    assert len(seen) >= 3


@both_ends
def test_keys_are_updated_on_the_way(client: type[MeshQuic], server: type[MeshQuic]) -> None:
    wire = Wire(client, server, 1452, Faults(delay=2))
    for end in (wire.client, wire.server) * 3:
        end.quic.request_key_update()
        exchange(wire, [200_000, 10])


class Doubted(BatchedQuic):
    """A connection that checks each idle decision against the stock path."""

    idle = 0

    def fill(self, now: float, room: int) -> list[tuple[bytes, NetworkAddress]]:
        found = super().fill(now, room)
        if not found and not self._wishing():
            type(self).idle += 1
            assert self.build(now, 10 * self._max_datagram_size) == []
        return found


@pytest.mark.parametrize("seed", [0, *more([1, 2])])
def test_what_is_idle_has_nothing_to_send(seed: int) -> None:
    Doubted.idle = 0
    wire = Wire(Doubted, Doubted, random.Random(seed).choice(SIZES), BAD, seed)
    for end in (wire.client, wire.server):
        exchange(wire, [1, 5_000, 300_000])
        exchange(wire, [100] * 100)
        end.quic.request_key_update()
        exchange(wire, [400_000, 70_000])
    assert Doubted.idle > 20


@both_ends
def test_keys_are_updated_before_they_wear_out(
    client: type[MeshQuic], server: type[MeshQuic], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quic_module, "KEY_UPDATE_AFTER", 100)
    wire = Wire(client, server, 1452)
    pair = wire.server.quic._cryptos[Epoch.ONE_RTT]
    secrets = set()
    for _ in range(4):
        stream = wire.server.quic.get_next_available_stream_id(is_unidirectional=True)
        wire.server.quic.send_stream_data(stream, blob(300_000, 1), end_stream=True)
        wire.run(lambda stream=stream: stream in wire.client.ended)
        assert wire.client.received.pop(stream) == blob(300_000, 1)
        secrets.add(pair.send.secret)
    assert len(secrets) >= 3


def test_bulk_leaves_in_bursts_and_arrives_in_pieces() -> None:
    """The fast path is really taken; otherwise the tests above would test the stock path."""
    wire = Wire(BatchedQuic, BatchedQuic, 1452)
    stream = wire.server.quic.get_next_available_stream_id(is_unidirectional=True)
    wire.server.quic.send_stream_data(stream, bytes(500_000), end_stream=True)
    burst = wire.server.quic.datagrams_to_send(wire.now)
    assert len(burst) == 44 + 1  # with an ACK
    sent = wire.server.quic._spaces[Epoch.ONE_RTT].sent_packets
    assert sum([isinstance(packet, BulkBurst) for packet in sent.values()]) == 44
    wire.client.pieces = 0
    wire.client.quic.receive_datagrams([bytes(data) for data, _ in burst], ("server", 2), wire.now)
    wire.client.hear()
    assert wire.client.pieces <= 2


def test_a_small_op_is_one_small_packet_each_way() -> None:
    wire = Wire(BatchedQuic, BatchedQuic, 1452)
    client, server = wire.client.quic, wire.server.quic
    stream = client.get_next_available_stream_id()
    for turn in range(200):
        for sender, receiver, origin in ((client, server, ADDRESS), (server, client, SERVER)):
            wire.now += 0.0003
            sender.send_stream_data(stream, b"%d" % turn * 10)
            datagrams = sender.datagrams_to_send(wire.now)
            assert len(datagrams) == 1
            if turn:  # the first packets carry the rest of the handshake
                kinds = {n: type(packet) for n, packet in sender._space.sent_packets.items()}
                assert kinds[sender._packet_number - 1].__name__ == SmallPacket.__name__
                assert sender._space.ack_at is None
            receiver.receive_datagrams([data for data, _ in datagrams], origin, wire.now)
            assert len(receiver._space.ack_queue) == 1
            assert len(sender._space.sent_packets) < 4
    wire.client.hear()
    wire.server.hear()
    sent = b"".join([b"%d" % turn * 10 for turn in range(200)])
    assert wire.client.received[stream] == wire.server.received[stream] == sent


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 20), st.integers(0, 1 << 14))
def test_an_ack_is_read_as_it_was_meant(first: int, more: int, delay: int) -> None:
    frame = ack_frame(RangeSet([range(first, first + more + 1)]), delay)
    buffer = Buffer(data=frame)
    assert buffer.pull_uint_var() == QuicFrameType.ACK
    assert pull_ack_frame(buffer) == (RangeSet([range(first, first + more + 1)]), delay)
    assert buffer.eof()
    assert ack_frame(RangeSet([range(1, 2), range(5, 6)]), 0) == b""


def test_much_at_once_is_acknowledged_at_once() -> None:
    """A sender whose window is full must not wait for the timer of delayed ACKs."""
    wire = Wire(BatchedQuic, BatchedQuic, 60_000)
    stream = wire.server.quic.get_next_available_stream_id(is_unidirectional=True)
    wire.server.quic.send_stream_data(stream, bytes(1_000_000))
    for at_once in (False, True):
        burst = wire.server.quic.datagrams_to_send(wire.now)
        data = [bytes(datagram) for datagram, _ in burst]
        assert 450_000 < sum(map(len, data)) < 550_000
        wire.client.quic.receive_datagrams(data, ("server", 2), wire.now)
        assert bool(wire.client.quic.datagrams_to_send(wire.now)) is at_once
    wire.run(lambda: wire.server.quic.is_delivered(stream))


def test_small_answers_overtake_bulk() -> None:
    wire = Wire(BatchedQuic, BatchedQuic, 1452)
    quic = wire.server.quic
    bulk = quic.get_next_available_stream_id(is_unidirectional=True)
    quic.send_stream_data(bulk, bytes(3_000_000), end_stream=True)
    wire.step()
    answer = quic.get_next_available_stream_id(is_unidirectional=True)
    quic.send_stream_data(answer, b"pong", end_stream=True)
    wire.run(lambda: answer in wire.client.ended, steps=3)
    assert bulk not in wire.client.ended


def test_a_peer_above_its_limits_is_closed() -> None:
    wire = Wire(BatchedQuic, BatchedQuic, 1452)
    wire.client.quic._local_max_data.value = 50_000
    stream = wire.server.quic.get_next_available_stream_id(is_unidirectional=True)
    wire.server.quic.send_stream_data(stream, bytes(400_000))
    wire.run(lambda: wire.client.closed is not None)
    assert "flow-control" in (wire.client.closed or "")
    wire.run(lambda: wire.server.closed is not None)


def test_data_behind_the_end_is_refused() -> None:
    wire = Wire(BatchedQuic, BatchedQuic, 1452)
    quic = wire.server.quic
    stream = quic.get_next_available_stream_id(is_unidirectional=True)
    quic.send_stream_data(stream, bytes(9_000), end_stream=True)
    sender = quic._streams[stream].sender
    sender._buffer_fin = 2 * 1414  # the FIN comes early
    wire.run(lambda: wire.client.closed is not None)
    assert "final size" in (wire.client.closed or "").lower()


@pytest.mark.parametrize(
    "plain",
    [b"", b"\x01", b"\x0c", b"\x0c\x03", b"\x0c\x03\xc0\x00", b"\x0e\x03\x00\x05abc", b"\x0c\xff"],
)
def test_other_content_is_left_to_the_stock_path(plain: bytes) -> None:
    assert parse_bulk(plain) is None


def test_another_aioquic_falls_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert quic_class(True) is BatchedQuic
    assert quic_class(False) is MeshQuic
    monkeypatch.setattr(aioquic, "__version__", "1.8.0")
    with caplog.at_level(logging.WARNING):
        assert quic_class(True) is MeshQuic
    assert "1.8.0" in caplog.text
