"""Small packets: read as aioquic reads them, acknowledged with an answer, and cheap to send."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from aioquic._buffer import Buffer
from aioquic.quic.connection import NetworkAddress
from aioquic.quic.packet import QuicFrameType, pull_ack_frame, push_ack_frame
from aioquic.quic.rangeset import RangeSet
from hypothesis import given
from hypothesis import strategies as st

from quafka_mesh_ops.transport.aioquic_adapter.batched import BatchedQuic
from quafka_mesh_ops.transport.aioquic_adapter.chores import has_chores
from quafka_mesh_ops.transport.aioquic_adapter.quic import MeshQuic
from quafka_mesh_ops.transport.aioquic_adapter.small import varints
from quafka_mesh_ops.transport.aioquic_adapter.small_reader import Arrived, read_small
from tests.unit.mesh_ops.wire import CLIENT as ADDRESS
from tests.unit.mesh_ops.wire import SERVER, Faults, Wire

NUMBERS = st.integers(0, 1 << 40)
RANGES = st.lists(st.integers(0, 1 << 20), min_size=1, max_size=40)


def encoded_ack(numbers: list[int], delay: int) -> tuple[bytes, RangeSet]:
    acked = RangeSet()
    for number in numbers:
        acked.add(number)
    buffer = Buffer(capacity=2_000)
    buffer.push_uint_var(QuicFrameType.ACK)
    push_ack_frame(buffer, acked, delay, 1_900)
    return buffer.data, acked


@given(RANGES, st.integers(0, 1 << 14), NUMBERS, NUMBERS, st.binary(max_size=80), st.booleans())
def test_frames_are_read_as_they_were_written(
    numbers: list[int], delay: int, stream: int, offset: int, data: bytes, fin: bool
) -> None:
    ack, acked = encoded_ack(numbers, delay)
    kind = 0x0E | fin
    head = bytes([kind]) + varints(stream, offset, len(data))
    frames = read_small(ack + head + data)
    assert frames is not None
    assert frames.acked == list(acked)
    assert frames.ack_delay == delay
    assert frames.arrived == [Arrived(kind, stream, offset, data)]


@given(st.binary(max_size=60))
def test_of_any_bytes_only_valid_ack_frames_are_accepted(rest: bytes) -> None:
    frames = read_small(b"\x02" + rest)
    if frames is not None and not frames.arrived:
        buffer = Buffer(data=rest)
        assert list(pull_ack_frame(buffer)[0]) == frames.acked
        assert buffer.eof()


@pytest.mark.parametrize(
    "plain",
    [
        b"\x01",  # PING
        b"\x02\x05\x00\x00",  # cut
        b"\x02\x05\x00\x00\x06",  # below packet 0
        b"\x02\x05\x00\x01\x01\x09\x00",  # the second range is
        b"\x02\x05\x00\x7f\xff\x00" + bytes(400),  # more ranges than are kept
        b"\x02\x05\x00\x00\x00\x02\x05\x00\x00\x00",  # two ACKs
        b"\x0e\x00\x00\x05abc",  # cut
        b"\x0e\x00\xff\xff\xff\xff\xff\xff\xff\xff\x01a",  # beyond the largest offset
        b"\x0c\x00\x00abc",  # without a length
    ],
)
def test_everything_else_is_left_to_aioquic(plain: bytes) -> None:
    assert read_small(plain) is None


# --- ACKs ---------------------------------------------------------------------------------------


def send(wire: Wire, count: int, size: int = 100, lost: tuple[int, ...] = ()) -> BatchedQuic:
    """Send so many small packets to the server; returns the server's end."""
    client, server = wire.client.quic, wire.server.quic
    stream = client.get_next_available_stream_id()
    for number in range(count):
        client.send_stream_data(stream, bytes(size))
        datagrams = [bytes(data) for data, _ in client.datagrams_to_send(wire.now)]
        if number not in lost:
            server.receive_datagrams(datagrams, ADDRESS, wire.now)
    assert isinstance(server, BatchedQuic)
    return server


def quiet_wire() -> Wire:
    wire = Wire(BatchedQuic, BatchedQuic, 1_452)
    for _ in range(100):
        wire.step()
    return wire


@pytest.mark.parametrize(
    ("count", "size", "lost", "wait"),
    [(1, 100, (), 0.01), (8, 100, (), 0.01), (9, 100, (), 0.001), (3, 1_000, (), 0.001),
     (3, 100, (1,), 0.001)],
)  # fmt: skip
def test_an_ack_of_little_waits_for_an_answer(
    count: int, size: int, lost: tuple[int, ...], wait: float
) -> None:
    wire = quiet_wire()
    server = send(wire, count, size, lost)
    assert server.datagrams_to_send(wire.now) == []
    assert server._space.ack_at == pytest.approx(wire.now + wait)
    timer = server.get_timer()
    assert timer is not None
    assert timer <= wire.now + wait
    sent = server.datagrams_to_send(wire.now + wait)
    assert len(sent) == 1
    assert server._space.ack_at is None
    wire.client.quic.receive_datagrams([bytes(sent[0][0])], SERVER, wire.now + wait)
    assert wire.client.quic._space.ack_eliciting_in_flight == len(lost)


def test_one_request_at_a_time_is_one_packet_each_way() -> None:
    wire = quiet_wire()
    client, server = wire.client.quic, wire.server.quic
    stream = client.get_next_available_stream_id()
    before = client._packet_number + server._packet_number
    for _ in range(50):
        for a, b, origin in ((client, server, ADDRESS), (server, client, SERVER)):
            wire.now += 0.002
            assert b.datagrams_to_send(wire.now) == []
            a.send_stream_data(stream, b"frame")
            ((data, _),) = a.datagrams_to_send(wire.now)
            b.receive_datagrams([bytes(data)], origin, wire.now)
            while b.next_event() is not None:
                pass
    assert client._packet_number + server._packet_number - before == 100
    assert isinstance(client, BatchedQuic)
    assert client.recovery.settled
    assert client._loss._rtt_smoothed < 0.01


def test_the_delay_of_an_ack_is_no_part_of_the_path() -> None:
    wire = quiet_wire()
    for _ in range(20):
        server = send(wire, 1)
        wire.now += 0.01
        ((data, _),) = server.datagrams_to_send(wire.now)
        wire.client.quic.receive_datagrams([bytes(data)], SERVER, wire.now)
    assert wire.client.quic._loss._rtt_latest < 0.004
    assert wire.client.quic._congestion.model is None


@pytest.mark.parametrize("packets", [0, 1, 6])
def test_a_closed_connection_is_kept_for_the_closing_period_only(packets: int) -> None:
    wire = quiet_wire()
    client, server = wire.client.quic, wire.server.quic
    stream = client.get_next_available_stream_id(is_unidirectional=True)
    burst: list[bytes] = []
    client.send_stream_data(stream, bytes(packets * 2_000))
    burst += [bytes(data) for data, _ in client.datagrams_to_send(wire.now)]
    client.close(reason_phrase="over")
    burst += [bytes(data) for data, _ in client.datagrams_to_send(wire.now)]
    server.receive_datagrams(burst, ADDRESS, wire.now)
    assert server.close_reason == "over"
    timer = server.get_timer()
    assert timer is not None
    assert timer < wire.now + 1.0


# --- a settled connection -----------------------------------------------------------------------


class Checked(BatchedQuic):
    """A connection that compares each decision of a settled one with the full one."""

    settled_packets = 0
    quiet = 0

    def is_quiet(self, now: float) -> bool:
        found = super().is_quiet(now)
        type(self).quiet += found
        return found

    def datagrams_to_send(self, now: float) -> list[tuple[bytes, NetworkAddress]]:
        quiet = self.is_quiet(now)
        found = super().datagrams_to_send(now)
        assert not (quiet and found)
        return found

    def receive_datagrams(
        self, datagrams: Sequence[bytes], addr: NetworkAddress, now: float
    ) -> None:
        before = sum(len(stream.receiver._buffer) for stream in self._streams.values())
        super().receive_datagrams(datagrams, addr, now)
        assert self.holds_unordered(before) == MeshQuic.holds_unordered(self, before)

    def settles(self) -> bool:
        was_settled = self.recovery.settled
        found = super().settles()
        if was_settled:
            type(self).settled_packets += 1
            assert not has_chores(self)
            assert self.send_keys is self._usual_keys()
        return found

    def get_timer(self) -> float | None:
        found = super().get_timer()
        loss_at = self._loss_at
        assert found == pytest.approx(MeshQuic.get_timer(self))
        assert loss_at == pytest.approx(self._loss_at)
        return found


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("faults", [Faults(), Faults(loss=0.05, repeat=0.03, delay=4)])
def test_a_settled_connection_misses_nothing(faults: Faults, seed: int) -> None:
    Checked.settled_packets = Checked.quiet = 0
    chance = random.Random(seed)
    wire = Wire(Checked, Checked, chance.choice([1_200, 1_452, 60_000]), faults, seed)
    ends = (wire.client, wire.server)
    stream = wire.client.quic.get_next_available_stream_id()
    happens: list[Callable[[MeshQuic], object]] = [
        lambda quic: quic.send_ping(0),
        lambda quic: quic.request_key_update(),
        lambda quic: quic.send_stream_data(_new_stream(quic), bytes(100_000), True),
        lambda quic: quic.reset_stream(_begun(quic), 0),
    ]
    wire.client.quic.send_stream_data(stream, b"x")
    wire.run(lambda: len(wire.server.received[stream]) == 1)
    sent = [1, 0]
    for _ in range(600):
        number = chance.randrange(2)
        if chance.random() < 0.5:
            ends[number].quic.send_stream_data(stream, bytes(200))
            sent[number] += 200
        elif chance.random() < 0.1:
            chance.choice(happens)(ends[number].quic)
        wire.step()
    wire.run(lambda: [len(ends[1 - number].received[stream]) for number in range(2)] == sent)
    assert wire.client.closed is None
    assert Checked.settled_packets > 100
    assert Checked.quiet > 100


def _new_stream(quic: MeshQuic) -> int:
    return quic.get_next_available_stream_id(is_unidirectional=True)


def _begun(quic: MeshQuic) -> int:
    stream = _new_stream(quic)
    quic.send_stream_data(stream, bytes(1_000))
    return stream
