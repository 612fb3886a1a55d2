"""Stateless resets (RFC 9000 section 10.3): a restarted node ends the connections of its past run.

The node answers packets of connections that it does not know, so its peers need not infer the
restart from silence.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterable

from aioquic.quic.connection import QuicConnectionId

_TOKEN_SIZE = 16
_SHORTEST_RESET, LONGEST_RESET = 21, 42
_SHORT_HEADER = 0x40


def reset_token(secret: bytes, cid: bytes) -> bytes:
    """Return the token which proves that a reset of this connection id comes from the node."""
    return hmac.digest(secret, cid, "sha256")[:_TOKEN_SIZE]


def stateless_reset(secret: bytes, cid: bytes, size: int) -> bytes | None:
    """Return the answer to a packet of `size` bytes for an unknown connection.

    It is always smaller than that packet, so two such nodes cannot keep a loop alive and a forged
    sender address gains nothing. None: the packet is too small to be answered.
    """
    size = min(size - 1, LONGEST_RESET)
    if size < _SHORTEST_RESET:
        return None
    noise = bytearray(os.urandom(size - _TOKEN_SIZE))
    noise[0] = noise[0] & 0x3F | _SHORT_HEADER
    return bytes(noise) + reset_token(secret, cid)


def is_reset(data: bytes, peer_cids: Iterable[QuicConnectionId]) -> bool:
    """Whether a datagram ends with the reset token of one of the peer's connection ids."""
    token = data[-_TOKEN_SIZE:]
    return len(token) == _TOKEN_SIZE and any(
        hmac.compare_digest(token, cid.stateless_reset_token) for cid in peer_cids
    )
