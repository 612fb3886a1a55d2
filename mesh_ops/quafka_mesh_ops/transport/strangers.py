"""What to do with the first packet of a stranger: open a connection, answer it, or drop it. Pure.

Whatever a stranger sends costs no memory until it has a slot (admission.py), and no cryptography
beyond a Retry.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from aioquic.quic.packet import QuicProtocolVersion, encode_quic_version_negotiation

from quafka_mesh_ops.transport.admission import Admission, Kind, host_of
from quafka_mesh_ops.transport.initial import Initial, OtherVersion, read_initial
from quafka_mesh_ops.transport.retry import RetryTokens, is_ours
from quafka_mesh_ops.transport.udp import Address


class Welcome(NamedTuple):
    """A connection may be opened for a packet to `cid`.

    `original_cid` is the client's first destination connection id; `retry_cid` is set where the
    client has come back with the token of a Retry.
    """

    cid: bytes
    original_cid: bytes
    retry_cid: bytes | None
    kind: Kind


class Strangers:
    """Judges first packets. `outcomes` counts what became of them."""

    def __init__(self, secret: bytes) -> None:
        """`secret`: what the tokens of Retry packets are made from."""
        self.admission = Admission()
        self.outcomes: Counter[str] = Counter()
        self._tokens = RetryTokens(secret)

    def arrived(
        self, data: bytes, address: Address, now: float, wall: float
    ) -> Welcome | bytes | None:
        """A slot for its sender, an answer to it, or neither.

        `now`: any clock that does not go back; `wall`: Unix time; both in seconds.
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
                # RFC 9000 section 8.1.3 lets us drop it: only a forged or stale token is like this.
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
    """RFC 9000 section 6.1."""
    return encode_quic_version_negotiation(
        source_cid=packet.destination,
        destination_cid=packet.source,
        supported_versions=[QuicProtocolVersion.VERSION_1],
    )
