"""Paths of all lengths and widths: datagram sizes, and the model of a long path."""

from __future__ import annotations

from dataclasses import replace

import pytest

from quafka_mesh_ops.transport.aioquic_adapter.batched import BatchedQuic
from quafka_mesh_ops.transport.aioquic_adapter.quic import MeshQuic
from quafka_mesh_ops.transport.aioquic_adapter.recovery import CountingRecovery
from quafka_mesh_ops.transport.bandwidth import BandwidthModel
from quafka_mesh_ops.transport.congestion import WINDOW
from quafka_mesh_ops.transport.ladder import DatagramLadder, largest
from tests.unit.mesh_ops.wire import Faults, Wire

BYTES = 1_000_000


INFINITE = float("inf")


@pytest.mark.parametrize(
    ("mtu", "version", "size"),
    [
        (65_536, 4, 60_000), (9_000, 4, 8_900), (9_000, 6, 8_900), (1_500, 4, 1_452),
        (1_500, 6, 1_452), (1_420, 4, 1_200), (1_280, 6, 1_200), (576, 4, 1_200),
    ],
)  # fmt: skip
def test_the_route_says_what_may_be_tried(mtu: int, version: int, size: int) -> None:
    assert largest(mtu, version) == size


def climb(ladder: DatagramLadder, now: float, takes: int) -> list[int]:
    """Run one round of probes over a path that takes datagrams of `takes` bytes."""
    probes = []
    while ladder.next_at <= now and (size := ladder.probe(now)):
        probes.append(size)
        assert ladder.next_at == INFINITE  # one at a time
        if size <= takes:
            ladder.arrived(size, now)
        else:
            ladder.lost(size, now)
    return probes


def test_the_ladder_is_tried_from_the_top_and_again_later() -> None:
    ladder = DatagramLadder(lambda: 60_000)
    assert ladder.size == 1_200
    assert climb(ladder, 0.0, 5_000) == [60_000, 8_900, 1_452]
    assert ladder.size == 1_452
    assert climb(ladder, 0.5, 5_000) == []
    assert climb(ladder, ladder.next_at, 5_000) == [60_000, 8_900]
    assert climb(ladder, ladder.next_at, 9_000) == [60_000, 8_900]
    assert ladder.size == 8_900
    ladder.swallowed(100.0)
    assert ladder.size == 1_200
    assert climb(ladder, 100.0, 2_000) == [1_452]
    ladder.moved(200.0)
    assert ladder.size == 1_200
    assert climb(ladder, 200.0, 60_000) == [60_000]


def test_pauses_between_vain_rounds_grow() -> None:
    ladder = DatagramLadder(lambda: 60_000)
    pauses = []
    now = 0.0
    for _ in range(8):
        climb(ladder, now, 1_200)
        pauses.append(ladder.next_at - now)
        now = ladder.next_at
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]


def test_what_the_route_does_not_take_is_neither_tried_nor_kept() -> None:
    route = 60_000
    ladder = DatagramLadder(lambda: route)
    assert climb(ladder, 0.0, 60_000) == [60_000]
    route = 1_452
    assert climb(ladder, ladder.next_at, 60_000) == []
    assert ladder.size == 1_452


def test_late_news_of_a_probe_changes_nothing() -> None:
    ladder = DatagramLadder(lambda: 60_000)
    climb(ladder, 0.0, 8_900)
    due = ladder.next_at
    ladder.lost(60_000, 0.1)
    ladder.arrived(60_000, 0.1)
    assert (ladder.size, ladder.next_at) == (8_900, due)


def test_a_configured_size_is_kept() -> None:
    ladder = DatagramLadder.fixed(4_000)
    ladder.swallowed(1.0)
    ladder.moved(2.0)
    assert (ladder.size, ladder.next_at) == (4_000, INFINITE)


def climbing(quic: type[MeshQuic], mtu: int, latency: int = 0) -> Wire:
    """A path whose ends probe its datagram size."""
    ladders = DatagramLadder(lambda: 60_000), DatagramLadder(lambda: 60_000)
    return Wire(quic, quic, 1_200, Faults(mtu=mtu, latency=latency), ladders=ladders)


def sizes(wire: Wire) -> set[int]:
    return {wire.client.quic.datagram_size, wire.server.quic.datagram_size}


both_transports = pytest.mark.parametrize("quic", [MeshQuic, BatchedQuic])


@both_transports
@pytest.mark.parametrize("latency", [2, 60])
def test_a_connection_climbs_and_steps_down_while_streams_flow(
    quic: type[MeshQuic], latency: int
) -> None:
    wire = climbing(quic, 1_500, latency)
    wire.run(lambda: sizes(wire) == {1_452})
    seconds(wire)
    for mtu, size in ((65_000, 60_000), (9_000, 8_900), (1_400, 1_200), (1_500, 1_452)):
        wire.faults = replace(wire.faults, mtu=mtu)
        began = wire.now
        while sizes(wire) != {size}:
            for sender, receiver in ((wire.client, wire.server), (wire.server, wire.client)):
                stream = sender.quic.get_next_available_stream_id(is_unidirectional=True)
                sender.quic.send_stream_data(stream, bytes(20_000), end_stream=True)
                wire.run(lambda end=receiver, stream=stream: stream in end.ended, 8_000)
                assert len(receiver.received.pop(stream)) == 20_000
            for _ in range(20):
                wire.step()
        assert wire.now - began < 5
    assert wire.client.closed is None
    assert wire.server.closed is None


@both_transports
def test_a_lost_probe_is_no_sign_of_a_full_path(quic: type[MeshQuic]) -> None:
    wire = climbing(quic, 1_300)
    for _ in range(4_000):
        wire.step()
    assert sizes(wire) == {1_200}
    for end in (wire.client, wire.server):
        assert end.quic._congestion.window == WINDOW
        assert end.quic._congestion.bytes_in_flight < 1_200
        loss = end.quic._loss
        assert isinstance(loss, CountingRecovery)
        assert (loss.lost, loss.retransmitted) == (0, 0)


@both_transports
def test_a_dead_path_is_not_taken_for_a_narrow_one(quic: type[MeshQuic]) -> None:
    wire = climbing(quic, 65_000)
    wire.run(lambda: sizes(wire) == {60_000})
    stream = wire.server.quic.get_next_available_stream_id(is_unidirectional=True)
    wire.server.quic.send_stream_data(stream, bytes(3_000_000), end_stream=True)
    wire.faults = replace(wire.faults, loss=1.0)
    for _ in range(4_000):
        wire.step()
    assert sizes(wire) == {60_000}
    wire.faults = replace(wire.faults, loss=0.0)
    wire.run(lambda: stream in wire.client.ended)
    assert sizes(wire) == {60_000}


def seconds(wire: Wire, size: int = BYTES) -> float:
    """Measure the transfer of a stream from the server."""
    began = wire.now
    stream = wire.server.quic.get_next_available_stream_id(is_unidirectional=True)
    wire.server.quic.send_stream_data(stream, bytes(size), end_stream=True)
    wire.run(lambda: stream in wire.client.ended)
    assert len(wire.client.received.pop(stream)) == size
    return wire.now - began


@both_transports
def test_a_short_path_is_filled_at_once(quic: type[MeshQuic]) -> None:
    wire = Wire(quic, quic, 1_452)
    assert seconds(wire) < 0.1
    congestion = wire.server.quic._congestion
    assert congestion.model is None
    assert congestion.window >= WINDOW


@both_transports
@pytest.mark.parametrize("size", [1_452, 60_000])
def test_a_long_path_is_filled_within_a_few_round_trips(quic: type[MeshQuic], size: int) -> None:
    wire = Wire(quic, quic, size, Faults(latency=50))
    seconds(wire, 100)
    assert wire.server.quic._congestion.model is not None
    assert seconds(wire, 3_000_000) < 12 * 0.05
    assert seconds(wire, 3_000_000) < 6 * 0.05


def test_random_loss_does_not_empty_a_long_path() -> None:
    """A window that is cut with every loss would carry 0.25 MB/s here (Mathis et al. 1997)."""
    wire = Wire(BatchedQuic, BatchedQuic, 1_452, Faults(latency=50, loss=0.02))
    seconds(wire)
    assert seconds(wire, 3_000_000) < 1.0


def test_small_traffic_does_not_lower_what_is_known_of_the_path() -> None:
    wire = Wire(BatchedQuic, BatchedQuic, 1_452, Faults(latency=50))
    seconds(wire, 3_000_000)
    fast = seconds(wire, 3_000_000)
    for _ in range(30):
        seconds(wire, 50)
    assert seconds(wire, 3_000_000) < 1.5 * fast


def test_a_path_that_turns_out_short_is_treated_so() -> None:
    wire = Wire(BatchedQuic, BatchedQuic, 1_452, Faults(latency=20))
    seconds(wire, 100)
    assert wire.server.quic._congestion.model is not None
    wire.faults = Faults()
    seconds(wire, 10_000)
    wire.run(lambda: wire.server.quic._congestion.model is None, steps=200)


def test_the_model_paces() -> None:
    model = BandwidthModel(1_452, now=0.0, round_trip=0.1)
    model.sent(0, 64_000, 0.0, 64_000, limited=False)
    assert model.room(0.001) == 0
    assert 0.001 < model.next_at < 0.1
    assert model.room(model.next_at) >= 2 * 1_452


def test_after_a_stall_little_is_sent_until_something_arrives() -> None:
    model = BandwidthModel(1_452, now=0.0, round_trip=0.1)
    model.stalled()
    assert model.window == 4 * 1_452
