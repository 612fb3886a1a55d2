"""Bursts of full packets: sealed, opened, acknowledged and lost as one, and as single packets."""

from __future__ import annotations

import random

import pytest

from quafka_mesh_ops.transport.aioquic_adapter.batched import BatchedQuic
from quafka_mesh_ops.transport.aioquic_adapter.bulk import BulkBurst, equal_headers, headers_of
from quafka_mesh_ops.transport.aioquic_adapter.burst import Burst
from quafka_mesh_ops.transport.aioquic_adapter.quic import MeshQuic
from quafka_mesh_ops.transport.aioquic_adapter.recovery import BurstRecovery
from quafka_mesh_ops.transport.send_buffer import SendBuffer
from tests.unit.mesh_ops.wire import SERVER, Faults, Wire


def begin(wire: Wire, size: int) -> tuple[int, bytes, list[bytes]]:
    """Send this much on a stream of its own; returns stream, data and the first burst."""
    quic = wire.server.quic
    stream = quic.get_next_available_stream_id(is_unidirectional=True)
    data = random.Random(size).randbytes(size)
    quic.send_stream_data(stream, data, end_stream=True)
    return stream, data, [bytes(packet) for packet, _ in quic.datagrams_to_send(wire.now)]


def settled_wire(client: type[MeshQuic] = BatchedQuic) -> Wire:
    wire = Wire(client, BatchedQuic, 1_452)
    for _ in range(100):
        wire.step()
    return wire


def arrives(wire: Wire, stream: int, data: bytes) -> None:
    wire.run(lambda: stream in wire.client.ended)
    assert wire.client.received.pop(stream) == data
    wire.run(lambda: wire.server.quic.is_delivered(stream))
    assert wire.server.quic._space.ack_eliciting_in_flight >= 0


@pytest.mark.parametrize("client", [MeshQuic, BatchedQuic])
def test_numbers_wrap_within_a_burst(client: type[MeshQuic]) -> None:
    wire = settled_wire(client)
    server, space = wire.server.quic, wire.client.quic._space
    server._packet_number = (1 << 16) - 20
    space.expected_packet_number = server._packet_number
    space.largest_received_packet = server._packet_number - 1
    stream, data, burst = begin(wire, 60_000)
    assert len(burst) == 43
    wire.client.quic.receive_datagrams(burst, SERVER, wire.now)
    arrives(wire, stream, data)
    assert server._packet_number > 1 << 16


@pytest.mark.parametrize("lost", [{0}, {43}, {3, 4, 20}, set(range(1, 43)), set(range(44))])
def test_what_is_lost_of_a_burst_is_sent_again(lost: set[int]) -> None:
    wire = settled_wire()
    recovery = wire.server.quic._loss
    assert isinstance(recovery, BurstRecovery)
    stream, data, burst = begin(wire, 200_000)
    kept = [packet for number, packet in enumerate(burst) if number not in lost]
    wire.client.quic.receive_datagrams(kept, SERVER, wire.now)
    arrives(wire, stream, data)
    assert recovery.retransmitted >= len(lost)
    assert recovery.retransmitted <= len(lost) + 2  # and the probes, if nothing was acknowledged
    assert recovery.bytes_in_flight >= 0
    wire.run(lambda: recovery.bytes_in_flight == 0)


def test_acks_with_holes_settle_a_burst_piece_by_piece() -> None:
    wire = settled_wire()
    quic = wire.server.quic
    recovery, space = quic._loss, quic._space
    assert isinstance(recovery, BurstRecovery)
    before = recovery.bytes_in_flight
    stream, _, _ = begin(wire, 60_000)
    records: set[object] = set(space.sent_packets.values())
    (burst,) = [record for record in records if isinstance(record, BulkBurst)]
    first, last = burst.first, burst.last
    assert [burst.packet(n).start for n in (first, last)] == [0, 42 * burst.capacity]
    assert burst.packet(last).stop == 60_000
    assert burst.packet(last).fin
    assert not burst.packet(first).fin
    for ranges in ([range(first + 1, first + 3)], [range(first, first + 10)], [range(last + 1)]):
        recovery.acked(ranges, 0.0, wire.now, space)
        recovery.acked(ranges, 0.0, wire.now, space)  # the same again changes nothing
    assert recovery.bytes_in_flight == before
    assert not space.ack_eliciting_in_flight
    assert quic.is_delivered(stream)


@pytest.mark.parametrize("damaged", [0, 1, 20, 42])
@pytest.mark.parametrize("place", [0, 9, 10, 14, 500])
def test_a_damaged_packet_costs_only_itself(damaged: int, place: int) -> None:
    wire = settled_wire()
    stream, data, burst = begin(wire, 60_000)
    packet = burst[damaged]
    burst[damaged] = packet[:place] + bytes([packet[place] ^ 1]) + packet[place + 1 :]
    wire.client.quic.receive_datagrams(burst, SERVER, wire.now)
    received = wire.client.quic._space.ack_queue
    assert sum(map(len, received)) >= 42
    arrives(wire, stream, data)


def test_a_run_is_opened_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []
    usual = Burst.open_run

    def counted(self: Burst, datagrams: list[bytes]) -> int:
        opened.append(usual(self, datagrams))
        return opened[-1]

    monkeypatch.setattr(Burst, "open_run", counted)
    wire = settled_wire()
    stream, data, burst = begin(wire, 60_000)
    wire.client.quic.receive_datagrams(burst, SERVER, wire.now)
    assert opened[-1] == len(burst)
    wire.client.quic.receive_datagrams(burst, SERVER, wire.now)  # all again
    assert opened[-1] == 0
    more, more_data, burst = begin(wire, 60_000)
    del burst[20]
    wire.client.quic.receive_datagrams(burst, SERVER, wire.now)
    assert opened[-1] == 20
    arrives(wire, more, more_data)
    assert wire.client.quic._space.largest_received_packet == wire.server.quic._packet_number - 1
    arrives(wire, stream, data)


@pytest.mark.parametrize("seed", range(3))
def test_both_ways_to_open_agree(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without runs the same arrives over the same path, and is acknowledged the same."""
    found: list[tuple[bytes, int]] = []
    for runs in (True, False):
        with monkeypatch.context() as patch:
            if not runs:
                patch.setattr(Burst, "open_run", lambda *_: 0)
            faults = Faults(loss=0.01, repeat=0.01, delay=seed)
            wire = Wire(BatchedQuic, BatchedQuic, 1_452, faults, seed)
            stream, data, burst = begin(wire, 500_000)
            wire.client.quic.receive_datagrams(burst, SERVER, wire.now)
            wire.run(lambda wire=wire, stream=stream: stream in wire.client.ended)
            found.append((bytes(wire.client.received[stream]), len(burst)))
            assert found[-1][0] == data
    assert found[0] == found[1]


def test_headers_are_made_for_each_number() -> None:
    made = headers_of(b"\x41" + b"connecti", 0xFFFE, 3)
    assert made == b"\x41connecti\xff\xfe\x41connecti\xff\xff\x41connecti\x00\x00"


@pytest.mark.parametrize("different", [0, 1, 10, 11, 20, 21, 22, 32])
def test_headers_are_equal_up_to_the_first_difference(different: int) -> None:
    one = headers_of(b"\x41" + b"connecti", 5, 3)
    assert equal_headers(one, one) == 3
    other = bytearray(one)
    other[different] ^= 0x80
    assert equal_headers(one, bytes(other)) == different // 11


def test_a_view_of_a_buffer_is_of_one_piece_or_a_copy() -> None:
    buffer = SendBuffer()
    buffer += b"abcdef"
    buffer += b"ghi"
    assert bytes(buffer.view(1, 4)) == b"bcd"
    assert bytes(buffer.view(4, 8)) == b"efgh"
    del buffer[:6]
    assert bytes(buffer.view(0, 3)) == b"ghi"
