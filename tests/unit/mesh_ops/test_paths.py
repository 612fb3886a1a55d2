"""Paths of all lengths and widths: datagram sizes, and the model of a long path."""

from __future__ import annotations

import pytest

from quafka_mesh_ops.transport.bandwidth import BandwidthModel
from quafka_mesh_ops.transport.batched import BatchedQuic
from quafka_mesh_ops.transport.congestion import WINDOW
from quafka_mesh_ops.transport.ladder import DatagramLadder
from quafka_mesh_ops.transport.quic import MeshQuic
from tests.unit.mesh_ops.wire import Faults, Wire

BYTES = 1_000_000


@pytest.mark.parametrize(
    ("mtu", "version", "size"),
    [
        (65_536, 4, 60_000), (9_000, 4, 8_900), (9_000, 6, 8_900), (1_500, 4, 1_452),
        (1_500, 6, 1_452), (1_420, 4, 1_200), (1_280, 6, 1_200), (576, 4, 1_200),
    ],
)  # fmt: skip
def test_the_route_says_where_to_begin(mtu: int, version: int, size: int) -> None:
    ladder = DatagramLadder()
    ladder.route_is(mtu, version)
    assert ladder.size == size


def test_the_ladder_is_gone_down_step_by_step_and_then_from_the_top() -> None:
    ladder = DatagramLadder()
    ladder.route_is(65_536, 4)
    tried = []
    for _ in range(6):
        tried.append((ladder.size, ladder.may_step_down))
        ladder.too_large()
        ladder.route_is(65_536, 4)
    assert tried == [
        (60_000, True), (8_900, True), (1_452, True), (1_200, False), (60_000, True), (8_900, True),
    ]  # fmt: skip
    ladder.route_is(1_500, 4)  # the route has changed
    assert ladder.size == 1_452


def test_a_configured_size_is_kept() -> None:
    ladder = DatagramLadder(4_000)
    ladder.route_is(1_500, 4)
    ladder.too_large()
    assert (ladder.size, ladder.may_step_down) == (4_000, False)


def seconds(wire: Wire, size: int = BYTES) -> float:
    """How long the server's stream of so many bytes takes."""
    began = wire.now
    stream = wire.server.quic.get_next_available_stream_id(is_unidirectional=True)
    wire.server.quic.send_stream_data(stream, bytes(size), end_stream=True)
    wire.run(lambda: stream in wire.client.ended)
    assert len(wire.client.received.pop(stream)) == size
    return wire.now - began


@pytest.mark.parametrize("quic", [MeshQuic, BatchedQuic])
def test_a_short_path_is_filled_at_once(quic: type[MeshQuic]) -> None:
    wire = Wire(quic, quic, 1_452)
    assert seconds(wire) < 0.1
    congestion = wire.server.quic._congestion
    assert congestion.model is None
    assert congestion.window >= WINDOW


@pytest.mark.parametrize("quic", [MeshQuic, BatchedQuic])
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
