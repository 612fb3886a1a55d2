"""QUIC packet protection for bursts (RFC 9001 section 5).

AES-GCM is applied packet by packet; one AES call makes the header masks of a whole burst. The keys
are derived from the connection's secret, so every QUIC implementation can open these packets, and
vice versa.
"""

# ruff: noqa: SLF001
# pyright: reportPrivateUsage=false
from __future__ import annotations

from collections.abc import Callable

from aioquic.quic.crypto import CryptoContext, derive_key_iv_hp
from aioquic.tls import CipherSuite
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

TAG_SIZE = 16
SAMPLE_SIZE = 16
Masks = Callable[[bytes], bytes]
"""Makes the masks of concatenated samples."""
_SUITES = (CipherSuite.AES_128_GCM_SHA256, CipherSuite.AES_256_GCM_SHA384)


class Keys:
    """The keys of one direction, for one key phase.

    Attributes:
        secret: the secret that the keys are derived from.
        phase: the key phase bit, 0 or 1.
        iv: the IV as a number; a packet's nonce is this XOR its packet number.
    """

    __slots__ = ("aead", "iv", "masks", "phase", "secret")

    def __init__(self, context: CryptoContext, secret: bytes) -> None:
        assert context.cipher_suite is not None
        assert context.version is not None
        key, iv, _ = derive_key_iv_hp(
            cipher_suite=context.cipher_suite, secret=secret, version=context.version
        )
        self.secret = secret
        self.phase = context.key_phase
        self.aead = AESGCM(key)
        self.iv = int.from_bytes(iv, "big")
        # Key updates keep the header key of the first secret (RFC 9001 section 6), so it is not
        # derived from this one. aioquic's cipher works on single blocks, so it can be shared.
        assert context.hp is not None
        self.masks: Masks = context.hp._encryptor.update


class KeyRing:
    """The keys of one direction of a connection, derived again only after a key update."""

    def __init__(self) -> None:
        self._keys: Keys | None = None

    def keys(self, context: CryptoContext) -> Keys | None:
        """Return the current keys; None before the handshake and for ciphers other than AES-GCM."""
        secret = context.secret
        if secret is None or context.cipher_suite not in _SUITES:
            return None
        keys = self._keys
        if keys is None or keys.secret is not secret:
            keys = self._keys = Keys(context, secret)
        return keys
