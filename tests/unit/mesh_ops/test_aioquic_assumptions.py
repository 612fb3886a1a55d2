"""What the mesh assumes about aioquic beyond its documentation, and what breaks without it.

Run with another release of aioquic, these tests name what has moved.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aioquic import tls
from aioquic._buffer import Buffer
from aioquic.quic import connection, recovery
from aioquic.quic.connection import QuicConnection
from aioquic.quic.packet import QuicStreamFrame
from aioquic.quic.packet_builder import QuicDeliveryState, QuicSentPacket
from aioquic.quic.stream import QuicStream, QuicStreamReceiver, QuicStreamSender

import quafka_mesh_ops.transport.aioquic_adapter as adapter
from quafka_mesh_ops.transport.aioquic_adapter.batched import BatchedQuic
from quafka_mesh_ops.transport.aioquic_adapter.bulk import CID_SIZE
from quafka_mesh_ops.transport.aioquic_adapter.mutual_tls import MutualContext
from quafka_mesh_ops.transport.aioquic_adapter.quic import MeshQuic
from tests.unit.mesh_ops.wire import Wire

_ADAPTER = Path(adapter.__file__).parent
_PRODUCT = Path(__file__).parents[3]
_PACKAGES = ("proto", "mesh_ops", "broker", "gateway", "spark", "deploy")

ASSUMED: dict[str, dict[str, str]] = {
    "connection": {
        "mutual TLS, kept spaces and keys": "_initialize _spaces _cryptos",
        "recovery with counters, and for bursts":
            "_loss _send_probe _logger _quic_logger _max_datagram_size _is_client",
        "bursts, their limits and their order":
            "_streams_queue _packet_number _network_paths _peer_cid _remote_max_data "
            "_remote_max_data_used _local_ack_delay_exponent _ack_eliciting_sent_since_receipt",
        "reading bursts and small packets":
            "_events _ack_delay _assert_stream_can_receive _get_or_create_stream _payload_received "
            "_remote_ack_delay_exponent _version _local_max_data",
        "the decision that only ACKs and stream data are to be sent":
            "_state _close_pending _handshake_complete _handshake_confirmed _probe_pending "
            "_ping_pending _datagrams_pending _handshake_done_pending _retire_connection_ids "
            "_streams_blocked_pending _remote_preferred_address _crypto_streams _host_cids "
            "_local_max_streams_bidi _local_max_streams_uni",
        "timers of settled connections": "_close_at _loss_at _idle_timeout",
        "data by reference": "_streams _get_or_create_stream_for_send",
        "STREAM frames above 16 KiB": "_write_stream_frame",
        "probes of the datagram size": "_flush_builder _spin_bit",
        "stateless resets": "_write_new_connection_id_frame _peer_cid_available",
        "the reason of a close": "_close_event",
    },
    "loss": {
        "the congestion control and pacing of the mesh": "_cc _pacer",
        "counters of losses": "_on_packets_lost",
        "ACKs of bursts": "_detect_loss _in_persistent_congestion _rtt_first_sample_time "
        "_rtt_initial _rtt_initialized _rtt_latest _rtt_min _rtt_smoothed _rtt_variance",
        "timers of settled connections": "_pto_count _time_of_last_sent_ack_eliciting_packet",
    },
    "sender": {
        "data by reference, bursts and small packets":
            "_buffer _buffer_start _buffer_stop _buffer_fin _pending _pending_eof _acked "
            "_reset_error_code",
    },
    "receiver": {
        "small packets, and the bound on data after gaps": "_buffer _buffer_start _final_size",
    },
    "window": {"the record of received packets": "_received _size"},
    "pair": {"key updates": "_update_key_requested"},
    "header protection": {"masks of a whole burst": "_encryptor"},
    "tls": {
        "mutual TLS": "_request_client_certificate _server_handle_certificate _peer_certificate "
        "_check_certificate_verify_signature",
        "advice to a client of another version": "_server_handle_hello",
    },
}  # fmt: skip
"""Private names, separated by blanks, by the object that has them and by what needs them."""


def assumed() -> Iterator[Any]:
    """The parameters of the first test."""
    for owner, groups in ASSUMED.items():
        for breaks, names in groups.items():
            for name in names.split():
                yield pytest.param(owner, name, breaks, id=f"{owner}-{name}")


@cache
def owners() -> dict[str, Any]:
    """Objects of a connection that has just been opened, and of its stream 0."""
    quic = Wire(MeshQuic, MeshQuic, 1200).client.quic
    quic.send_stream_data(0, b"data")
    stream = quic._streams[0]
    pair = quic._cryptos[tls.Epoch.ONE_RTT]
    return {
        "connection": quic, "loss": quic._loss, "sender": stream.sender,
        "receiver": stream.receiver, "pair": pair, "header protection": pair.send.hp,
        "window": quic._spaces[tls.Epoch.ONE_RTT].received_packets, "tls": quic.tls,
    }  # fmt: skip


@pytest.mark.parametrize(("owner", "name", "breaks"), list(assumed()))
def test_a_private_name_is_there(owner: str, name: str, breaks: str) -> None:
    assert hasattr(owners()[owner], name), f"aioquic's {owner} has no {name}; broken: {breaks}"


# --- only the adapter ---------------------------------------------------------------------------


def stock_names() -> set[str]:
    """All private names of aioquic's objects, without those that the adapter adds."""
    quic = owners()["connection"]
    context = SimpleNamespace(**vars(quic))
    for name in vars(quic).keys() - vars(QuicConnection(configuration=quic.configuration)).keys():
        delattr(context, name)
    found = set(vars(context)) | set(dir(QuicConnection))
    for owner, each in owners().items():
        if owner != "connection":
            found |= set(vars(each)) if hasattr(each, "__dict__") else set()
            found |= {name for base in type(each).__mro__ if _is_stock(base) for name in vars(base)}
    return {name for name in found if name.startswith("_") and not name.startswith("__")}


def _is_stock(base: type) -> bool:
    return base.__module__.startswith("aioquic")


def private_names(path: Path) -> set[str]:
    """The private names that a module reads, sets or overrides."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    read = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return read | {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


def test_the_table_is_complete() -> None:
    used = set[str]().union(*(private_names(path) for path in _ADAPTER.glob("*.py")))
    listed = {name for groups in ASSUMED.values() for names in groups.values()
              for name in names.split()}  # fmt: skip
    assert used & stock_names() == listed


def test_only_the_adapter_names_them() -> None:
    listed = {name for groups in ASSUMED.values() for names in groups.values()
              for name in names.split()}  # fmt: skip
    found = [
        f"{path.relative_to(_PRODUCT)}:{node.lineno} {node.attr}"
        for package in _PACKAGES
        for path in (_PRODUCT / package).rglob("*.py")
        if _ADAPTER not in path.parents
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and ((node.attr in listed and not _is_own(node)) or _swaps_class(node))
    ]
    assert found == []


def _is_own(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def _swaps_class(node: ast.Attribute) -> bool:
    return node.attr == "__class__" and isinstance(node.ctx, ast.Store)


def test_the_adapter_swaps_no_class() -> None:
    swaps = [
        node
        for path in _ADAPTER.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and _swaps_class(node)
    ]
    assert swaps == []


# --- what they take -----------------------------------------------------------------------------


SIGNATURES = {
    "recovery.QuicPacketRecovery.__init__": (
        (
            "congestion_control_algorithm initial_rtt max_datagram_size logger quic_logger "
            "peer_completed_address_validation send_probe"
        ),
        "MeshQuic makes its own recovery",
    ),
    "recovery.QuicPacketRecovery.on_ack_received": (
        "ack_rangeset ack_delay now space", "BurstRecovery replaces it"),
    "recovery.QuicPacketRecovery._on_packets_lost": (
        "congestion_event now packets persistent_congestion space",
        "CountingRecovery overrides it",
    ),
    "connection.QuicConnection._initialize": ("peer_cid", "MeshQuic overrides it"),
    "connection.QuicConnection._write_stream_frame": (
        "builder space stream max_offset", "MeshQuic limits the length of a frame"),
    "connection.QuicConnection._write_new_connection_id_frame": (
        "builder connection_id", "MeshQuic sets the token of a stateless reset"),
    "connection.QuicConnection._flush_builder": (
        "builder network_path peer_cid now", "probes of the datagram size"),
    "connection.QuicConnection._payload_received": (
        "context plain crypto_frame_required", "packets with rare frames"),
    "connection.QuicConnection._get_or_create_stream": (
        "frame_type stream_id", "bursts that are read"),
    "tls.Context._server_handle_hello": (
        "input_buf initial_buf handshake_buf", "advice to a client of another version"),
    "tls.Context._server_handle_certificate": ("input_buf", "clients without a certificate"),
    "tls.Context._check_certificate_verify_signature": ("verify", "the check of a peer"),
}  # fmt: skip
"""The parameters of functions that the mesh calls or overrides, and what breaks if they change."""
_MODULES = {"connection": connection, "recovery": recovery, "tls": tls}


@pytest.mark.parametrize("function", SIGNATURES)
def test_a_function_takes(function: str) -> None:
    parameters, breaks = SIGNATURES[function]
    module, kind, name = function.split(".")
    found = inspect.signature(getattr(getattr(_MODULES[module], kind), name)).parameters
    assert set(found) - {"self"} == set(parameters.split()), breaks


def test_a_record_of_a_packet_is_a_dataclass() -> None:
    """`SizeProbe.of` copies it; `BulkPacket` and `SmallPacket` have what recovery reads of it."""
    read = {"epoch", "in_flight", "is_ack_eliciting", "is_crypto_packet", "packet_number",
            "packet_type", "sent_bytes", "sent_time", "delivery_handlers"}  # fmt: skip
    assert read <= {each.name for each in fields(QuicSentPacket)}


# --- what they mean -----------------------------------------------------------------------------


def test_a_sender_keeps_what_is_not_acknowledged() -> None:
    """Bursts and small packets read and update these fields as the sender does."""
    sender: Any = QuicStreamSender(stream_id=0, writable=True)
    sender.write(b"0123456789", end_stream=True)
    assert (sender._buffer_start, sender._buffer_stop, sender._buffer_fin) == (0, 10, 10)
    assert list(sender._pending) == [range(10)]
    assert sender._pending_eof
    frame = sender.get_frame(6)
    assert frame is not None
    assert (frame.data, list(sender._pending)) == (b"012345", [range(6, 10)])
    assert sender.highest_offset == 6
    sender.on_data_delivery(QuicDeliveryState.ACKED, 0, 6, False)
    assert (sender._buffer_start, bytes(sender._buffer), len(sender._acked)) == (6, b"6789", 0)
    assert sender.get_frame(10) is not None
    assert sender.get_frame(10) is None
    assert sender.buffer_is_empty
    assert not sender._pending_eof


def test_a_sender_accepts_another_buffer() -> None:
    """`SendBuffer` replaces it while it is empty."""
    assert type(QuicStreamSender(stream_id=0, writable=True)._buffer) is bytearray


def test_a_receiver_keeps_what_follows_a_gap() -> None:
    """`take_in_order` passes data on without the receiver only if there is none."""
    receiver: Any = QuicStreamReceiver(stream_id=0, readable=True)
    assert receiver.handle_frame(QuicStreamFrame(data=b"56", offset=5)) is None
    assert (receiver._buffer_start, len(receiver._buffer)) == (0, 7)
    event = receiver.handle_frame(QuicStreamFrame(data=b"01234", offset=0, fin=False))
    assert event is not None
    assert event.data == b"0123456"
    assert (receiver._buffer_start, len(receiver._buffer), receiver._final_size) == (7, 0, None)
    receiver.handle_frame(QuicStreamFrame(data=b"", offset=7, fin=True))
    assert receiver._final_size == 7


def test_connection_ids_have_eight_bytes() -> None:
    """The place of a packet number in a short header."""
    quic = owners()["connection"]
    assert len(quic.host_cid) == len(quic._peer_cid.cid) == CID_SIZE


def test_the_masks_of_headers_are_blocks_of_a_cipher() -> None:
    """One call makes the masks of a burst; they are those of single packets."""
    pair = owners()["pair"]
    samples = bytes(range(32))
    masks = pair.send.hp._encryptor.update(samples)
    for at in (0, 16):
        header, payload = (
            bytes((0x41, *range(8), 1, 2)),
            bytes(2) + samples[at : at + 16] + bytes(9),
        )
        packet = pair.send.hp.apply(header, payload)
        mask = bytes(a ^ b for a, b in zip(header[9:11], packet[9:11], strict=True))
        assert mask == masks[at + 1 : at + 3]


def test_stock_frames_hold_less_than_16_kib() -> None:
    """aioquic writes the length of a STREAM frame into two bytes: MeshQuic limits it."""
    buffer = Buffer(capacity=2)
    buffer.push_uint16((1 << 14) - 1 | 0x4000)
    buffer.seek(0)
    assert buffer.pull_uint_var() == (1 << 14) - 1
    source = inspect.getsource(QuicConnection._write_stream_frame)
    assert "push_uint16(len(frame.data) | 0x4000)" in source


def test_a_context_takes_over_the_one_that_aioquic_made() -> None:
    made = tls.Context(is_client=False)
    made.alpn_cb = lambda _: None
    context = MutualContext(made, lambda _: None, lambda _: None)
    assert vars(context).keys() - vars(made).keys() == {"judge", "refused"}
    assert context.alpn_cb is made.alpn_cb
    assert context._request_client_certificate
    assert not made._request_client_certificate


@pytest.mark.parametrize("kind", [MeshQuic, BatchedQuic])
def test_the_recovery_of_a_connection_is_the_declared_one(kind: type[MeshQuic]) -> None:
    quic = Wire(kind, kind, 1200).client.quic
    assert type(quic._loss) is kind.recovery_class
    assert quic._loss.spaces == list(quic._spaces.values())


def test_streams_are_queued_in_the_order_of_their_data() -> None:
    """A burst takes streams from the front and puts them back at the end."""
    quic = owners()["connection"]
    assert all(type(stream) is QuicStream for stream in quic._streams_queue)
    assert quic._streams[0] in quic._streams_queue
