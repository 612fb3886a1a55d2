"""Handles first packets of unknown peers (strangers): connect, answer or drop. Pure.

A stranger's packets cost no memory until it has a slot (admission.py), and no cryptography beyond
a Retry.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from aioquic.quic.packet import QuicProtocolVersion, encode_quic_version_negotiation

from quafka_mesh_ops.transport.admission import SlotAdmission, SlotKind, host_of
from quafka_mesh_ops.transport.initial import Initial, OtherVersion, read_initial
from quafka_mesh_ops.transport.retry import RetryTokens, is_ours
from quafka_mesh_ops.transport.udp import Address


class Welcome(NamedTuple):
    """Permission to open a connection for a packet to `cid`.

    `original_cid`: the client's first destination connection id. `retry_cid`: set if the client
    has returned the token of a Retry.
    """

    cid: bytes
    original_cid: bytes
    retry_cid: bytes | None
    kind: SlotKind


class Strangers:
    """Judges first packets. `outcomes`: their number by outcome."""

    def __init__(self, secret: bytes) -> None:
        """`secret`: the tokens of Retry packets are derived from it."""
        self.admission = SlotAdmission()
        self.outcomes: Counter[str] = Counter()
        self._tokens = RetryTokens(secret)

    def arrived(
        self, data: bytes, address: Address, now: float, wall: float
    ) -> Welcome | bytes | None:
        """Return a slot for the sender, an answer to the packet, or None to drop it.

        `now`: any monotonic clock; `wall`: Unix time; both in seconds.
        """
        found = read_initial(data)
        if isinstance(found, Initial):
            return self._initial(found, address, now, wall)
        if found is None or not self.admission.may_answer(host_of(address), now):
            self.outcomes["dropped"] += 1
            return None
        return _negotiation(found)

    def _initial(
        self, packet: Initial, address: Address, now: float, wall: float
    ) -> Welcome | bytes | None:
        destination, token = packet.destination, packet.token
        proven = False
        original = destination
        if is_ours(token):
            known = self._tokens.original_cid(token, address, destination, wall)
            if known is None:
                # RFC 9000 section 8.1.3 allows to drop it: such a token is forged or stale.
                self.outcomes["bad_token"] += 1
                return None
            proven, original = True, known
        kind = self.admission.admit(host_of(address), proven=proven, now=now)
        if kind is not None:
            self.outcomes[f"admitted_{kind.value}"] += 1
            return Welcome(destination, original, destination if proven else None, kind)
        if proven:
            self.outcomes["no_slot"] += 1
            return None
        if not self.admission.may_answer(host_of(address), now):
            self.outcomes["dropped"] += 1
            return None
        self.outcomes["retried"] += 1
        return self._tokens.retry(address, destination, packet.source, wall)


def _negotiation(packet: OtherVersion) -> bytes:
    """Encode a Version Negotiation packet (RFC 9000 section 6.1)."""
    return encode_quic_version_negotiation(
        source_cid=packet.destination,
        destination_cid=packet.source,
        supported_versions=[QuicProtocolVersion.VERSION_1],
    )
