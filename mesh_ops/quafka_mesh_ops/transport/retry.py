"""Retry: a peer proves its address before the node spends memory on it.

RFC 9000 sections 8.1.2 and 17.2.5. The answer to a first packet is a Retry with a token; only a
sender that receives it can return the token. A token is bound to the IP address, the port and both
connection ids, is valid for `TOKEN_SECONDS`, and is checked with the listener's secret alone, so it
survives a restart of the broker between the two packets. Keys change every `KEY_SECONDS`.

aioquic's own handler uses one random key for the life of the process and accepts tokens for 30 s;
its Retry takes about three times as long to make.

Token: version 1, issued (Unix time in seconds, 4 bytes), length of the client's first destination
connection id, that id, and 16 bytes of HMAC-SHA256.
"""

from __future__ import annotations

import hmac
import os
import socket
import struct

from aioquic.quic.packet import RETRY_AEAD_KEY_VERSION_1, RETRY_AEAD_NONCE_VERSION_1
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from quafka_mesh_ops.transport.udp import Address

TOKEN_SECONDS = 10
"""A gateway abandons a handshake after three seconds."""
KEY_SECONDS = 600

_VERSION = 1
_HEAD = struct.Struct(">BIB")  # version, issued, length of the connection id
_MAC_SIZE = 16
_CID_SIZE = 8
_LONG_RETRY = 0xF0
_QUIC_1 = b"\x00\x00\x00\x01"
_INTEGRITY = AESGCM(RETRY_AEAD_KEY_VERSION_1)  # RFC 9001 section 5.8: a public constant


def is_ours(token: bytes) -> bool:
    """Whether a token has our form; clients may have tokens of other servers."""
    return len(token) >= _HEAD.size + _MAC_SIZE and token[0] == _VERSION


class RetryTokens:
    """Makes and checks tokens. Times are Unix time in seconds."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._keys: dict[int, bytes] = {}

    def retry(self, address: Address, original_cid: bytes, source_cid: bytes, now: float) -> bytes:
        """Make a Retry packet for a first packet with these destination and source ids."""
        cid = os.urandom(_CID_SIZE)
        head = _HEAD.pack(_VERSION, int(now), len(original_cid)) + original_cid
        token = head + self._mac(head, address, cid, int(now))
        packet = b"".join(
            (
                bytes((_LONG_RETRY,)), _QUIC_1,
                bytes((len(source_cid),)), source_cid,
                bytes((_CID_SIZE,)), cid,
                token,
            )
        )  # fmt: skip
        pseudo = bytes((len(original_cid),)) + original_cid + packet
        return packet + _INTEGRITY.encrypt(RETRY_AEAD_NONCE_VERSION_1, b"", pseudo)

    def original_cid(self, token: bytes, address: Address, cid: bytes, now: float) -> bytes | None:
        """Return the client's first destination connection id; None for an invalid token.

        `cid`: the destination connection id of the packet with the token.
        """
        if not is_ours(token):
            return None
        _, issued, length = _HEAD.unpack_from(token)
        head, mac = token[:-_MAC_SIZE], token[-_MAC_SIZE:]
        # A token from the future: the clock was set back, or rounded down.
        if len(head) != _HEAD.size + length or abs(now - issued) > TOKEN_SECONDS:
            return None
        if not hmac.compare_digest(mac, self._mac(head, address, cid, issued)):
            return None
        return head[_HEAD.size :]

    def _mac(self, head: bytes, address: Address, cid: bytes, issued: int) -> bytes:
        family = socket.AF_INET6 if len(address) == 4 else socket.AF_INET
        host = socket.inet_pton(family, str(address[0]).partition("%")[0])
        place = host + address[1].to_bytes(2, "big")
        text = b"".join((bytes((len(place), len(cid))), place, cid, head))
        return hmac.digest(self._key(issued // KEY_SECONDS), text, "sha256")[:_MAC_SIZE]

    def _key(self, period: int) -> bytes:
        key = self._keys.get(period)
        if key is None:
            if len(self._keys) > 2:
                self._keys.clear()  # a token's time is checked before its key is made
            key = hmac.digest(self._secret, b"retry %d" % period, "sha256")
            self._keys[period] = key
        return key
