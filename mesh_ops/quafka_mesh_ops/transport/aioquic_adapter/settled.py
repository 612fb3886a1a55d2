"""A connection that knows when it has nothing to do but to exchange ACKs and stream data.

aioquic looks for each kind of frame that it may have to send, for each packet, and works out each
timer. Nearly all packets of the mesh hold only ACKs and stream data, and change none of it. So a
connection without chores (chores.py) is settled, and stays so until something else happens.
"""

# ruff: noqa: SLF001
# pyright: reportPrivateUsage=false
from __future__ import annotations

from typing import Any, cast

from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import NetworkAddress, QuicConnectionState
from aioquic.quic.packet import QuicErrorCode
from aioquic.quic.stream import QuicStream

from quafka_mesh_ops.transport.aioquic_adapter.bulk import CID_SIZE
from quafka_mesh_ops.transport.aioquic_adapter.chores import has_chores
from quafka_mesh_ops.transport.aioquic_adapter.mutual_tls import VerifyPeer
from quafka_mesh_ops.transport.aioquic_adapter.protection import KeyRing, Keys
from quafka_mesh_ops.transport.aioquic_adapter.quic import MeshQuic
from quafka_mesh_ops.transport.aioquic_adapter.recovery import BurstRecovery
from quafka_mesh_ops.transport.ladder import DatagramLadder
from quafka_mesh_ops.transport.send_buffer import SendBuffer

_IDLE_CHECKED_EVERY = 0.25


class SettledQuic(MeshQuic):
    """A mesh connection that looks for other work only after something else has happened.

    Attributes:
        send_keys: the keys to seal with, once `settles` was called; None if the stock path must.
    """

    recovery_class = BurstRecovery

    def __init__(
        self,
        configuration: QuicConfiguration,
        verify: VerifyPeer,
        original_destination_connection_id: bytes | None = None,
        reset_secret: bytes | None = None,
        ladder: DatagramLadder | None = None,
        retry_cid: bytes | None = None,
    ) -> None:
        super().__init__(
            configuration,
            verify,
            original_destination_connection_id,
            reset_secret,
            ladder,
            retry_cid,
        )
        self.recovery = cast(BurstRecovery, self._loss)
        self.send_keys: Keys | None = None
        self._send_ring = KeyRing()
        self._receive_ring = KeyRing()
        self._idle_seconds = self._idle_checked = 0.0

    def settles(self) -> bool:
        """Whether the connection has no chores; also brings `send_keys` up to date."""
        recovery = self.recovery
        if recovery.settled:
            return True
        self.send_keys = self._usual_keys()
        chores = has_chores(self)
        recovery.settled = not chores and self.send_keys is not None
        return not chores

    def holds_unordered(self, limit: int) -> bool:
        """See MeshQuic; data after a gap unsettles."""
        return not self.recovery.settled and super().holds_unordered(limit)

    def unsettle(self) -> None:
        """Look for chores again before the next packet."""
        self.recovery.settled = False

    def _usual_keys(self) -> Keys | None:
        """Return the keys to seal with; None unless the connection is in its ordinary state."""
        if (
            not self._handshake_confirmed
            or self._state is not QuicConnectionState.CONNECTED
            or self._close_pending
            or self._probe_pending
            or self._ping_pending
            or not self._network_paths[0].is_validated
            or len(self._peer_cid.cid) != CID_SIZE
        ):
            return None
        if self._pair._update_key_requested:
            return None  # the stock path makes the next keys with its next packet
        return self._send_ring.keys(self._pair.send)

    # --- timers -----------------------------------------------------------------------------

    def not_idle(self, now: float) -> None:
        """Restart the idle timeout."""
        if now >= self._idle_checked:  # it depends on the round trip, which changes slowly
            self._idle_checked = now + _IDLE_CHECKED_EVERY
            self._idle_seconds = self._idle_timeout()
        self._close_at = now + self._idle_seconds

    def get_timer(self) -> float | None:
        """See MeshQuic."""
        recovery, close_at = self.recovery, self._close_at
        if not recovery.settled or self._paced_until is not None or close_at is None:
            return super().get_timer()
        probe_at = self._ladder.next_at
        timer = close_at if close_at < probe_at else probe_at
        space = self._space
        loss_at = space.loss_time
        if loss_at is None and space.ack_eliciting_in_flight:
            timeout = recovery.get_probe_timeout() * float(1 << recovery._pto_count)
            loss_at = (recovery._time_of_last_sent_ack_eliciting_packet or 0.0) + timeout
        self._loss_at = loss_at
        if loss_at is not None and loss_at < timer:
            timer = loss_at
        ack_at = space.ack_at
        return ack_at if ack_at is not None and ack_at < timer else timer

    # --- what unsettles -----------------------------------------------------------------------

    def receive_datagram(self, data: bytes, addr: NetworkAddress, now: float) -> None:
        """See MeshQuic."""
        self.unsettle()
        super().receive_datagram(data, addr, now)

    def handle_timer(self, now: float) -> None:
        """See MeshQuic."""
        self.unsettle()
        super().handle_timer(now)

    def build(self, now: float, room: int) -> list[tuple[bytes, NetworkAddress]]:
        """See MeshQuic."""
        self.unsettle()
        return super().build(now, room)

    def close(
        self,
        error_code: int = QuicErrorCode.NO_ERROR,
        frame_type: int | None = None,
        reason_phrase: str = "",
    ) -> None:
        """See aioquic."""
        self.unsettle()
        super().close(error_code, frame_type, reason_phrase)

    def request_key_update(self) -> None:
        """See aioquic."""
        self.unsettle()
        super().request_key_update()

    def reset_stream(self, stream_id: int, error_code: int) -> None:
        """See aioquic."""
        self.unsettle()
        super().reset_stream(stream_id, error_code)

    def stop_stream(self, stream_id: int, error_code: int = QuicErrorCode.NO_ERROR) -> None:
        """See aioquic."""
        self.unsettle()
        super().stop_stream(stream_id, error_code)

    def send_ping(self, uid: int) -> None:
        """See aioquic."""
        self.unsettle()
        super().send_ping(uid)

    def _get_or_create_stream_for_send(self, stream_id: int) -> QuicStream:
        found = self._streams.get(stream_id)
        if found is not None:
            buffer: Any = found.sender._buffer
            if isinstance(buffer, SendBuffer):
                return found
        self.unsettle()
        return super()._get_or_create_stream_for_send(stream_id)
