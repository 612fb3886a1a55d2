"""The frames that a QUIC connection may have to send besides ACKs and stream data."""

# ruff: noqa: SLF001
# pyright: reportPrivateUsage=false
from __future__ import annotations

from aioquic import tls
from aioquic.quic.connection import Limit, QuicConnectionState
from aioquic.quic.stream import QuicStream

from quafka_mesh_ops.transport.aioquic_adapter.quic import MeshQuic


def has_chores(quic: MeshQuic) -> bool:
    """Whether aioquic has to send anything but ACKs and stream data."""
    path, *other_paths = quic._network_paths
    return bool(
        not quic._handshake_confirmed
        or quic._state is not QuicConnectionState.CONNECTED
        or quic._close_pending
        or quic._probe_pending
        or quic._ping_pending
        or quic._datagrams_pending
        or quic._handshake_done_pending
        or quic._retire_connection_ids
        or quic._streams_blocked_pending
        or other_paths
        or path.remote_challenges
        or not path.is_validated
        or quic._remote_preferred_address is not None
        or not quic._crypto_streams[tls.Epoch.ONE_RTT].sender.buffer_is_empty
        or not all(cid.was_sent for cid in quic._host_cids)
        or quic._local_max_data.value != quic._local_max_data.sent
        or quic._local_max_data.used * 2 > quic._local_max_data.value
        or _admits_streams(quic._local_max_streams_bidi)
        or _admits_streams(quic._local_max_streams_uni)
        or any(map(_raises_limit, quic._streams.values()))
    )


def _raises_limit(stream: QuicStream) -> bool:
    """Whether a MAX_STREAM_DATA frame is due."""
    limit = stream.max_stream_data_local
    return stream.max_stream_data_local_sent != limit or (
        limit > 0 and stream.receiver.highest_offset * 2 > limit
    )


def _admits_streams(limit: Limit) -> bool:
    """Whether a MAX_STREAMS frame is due: only for many new streams at a time."""
    return limit.sent - limit.used < limit.value - limit.sent
