"""A TLS 1.3 client that changes its keys again and again, which no library offers to do."""

from __future__ import annotations

import hashlib
import hmac
import socket
import ssl
import tempfile
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_HASH = "sha384"
_CIPHER = "TLS_AES_256_GCM_SHA384"
_KEY_UPDATE = bytes([24, 0, 0, 1, 0]) + bytes([22])  # the message, and the type of its record
_HEADER = bytes([23, 3, 3]) + (len(_KEY_UPDATE) + 16).to_bytes(2, "big")


def _expand(secret: bytes, label: bytes, length: int) -> bytes:
    """HKDF-Expand-Label (RFC 8446, 7.1) without a context, for one block."""
    label = b"tls13 " + label
    info = length.to_bytes(2, "big") + bytes([len(label)]) + label + b"\0"
    return hmac.digest(secret, info + b"\x01", _HASH)[:length]


class KeyUpdates:
    """The records of a client after its handshake, before it has sent anything else."""

    def __init__(self, address: tuple[str, int]) -> None:
        """Connect. The certificate is not looked at."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        with tempfile.TemporaryDirectory() as folder:
            keys = Path(folder) / "keys"
            context.keylog_filename = str(keys)
            tls = context.wrap_socket(socket.create_connection(address, 10))
            cipher = tls.cipher()
            assert cipher is not None
            assert cipher[0] == _CIPHER
            lines = [line.split() for line in keys.read_text().splitlines()]
        (secret,) = (line[2] for line in lines if line[0] == "CLIENT_TRAFFIC_SECRET_0")
        self._secret = bytes.fromhex(secret)
        self.socket = socket.socket(fileno=tls.detach())
        self.socket.settimeout(10)

    def records(self, count: int) -> bytes:
        """The next changes of keys."""
        found: list[bytes] = []
        for _ in range(count):
            key, nonce = _expand(self._secret, b"key", 32), _expand(self._secret, b"iv", 12)
            found.append(_HEADER + AESGCM(key).encrypt(nonce, _KEY_UPDATE, _HEADER))
            length = hashlib.new(_HASH).digest_size
            self._secret = _expand(self._secret, b"traffic upd", length)
        return b"".join(found)
