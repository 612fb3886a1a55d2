"""QUIC packet protection for bursts (RFC 9001 section 5): AES-GCM one packet at a time, and the
header masks of all of them in one AES call.

The keys are derived from the connection's own secret, so what is sealed here can be opened by
any QUIC implementation and the other way round.
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
"""Samples side by side -> as many masks."""
_SUITES = (CipherSuite.AES_128_GCM_SHA256, CipherSuite.AES_256_GCM_SHA384)


class Keys:
    """One direction's keys, for one key phase.

    Attributes:
        secret: what they were derived from; another secret means other keys.
        phase: the key phase bit, 0 or 1.
        iv: as a number: a packet's nonce is this, XOR its packet number.
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
        # The header key stays the first secret's over key updates (RFC 9001 section 6), so it is
        # not derived from this one. aioquic has the cipher: single blocks, so it can be shared.
        assert context.hp is not None
        self.masks: Masks = context.hp._encryptor.update


class KeyRing:
    """The keys of one direction of a connection, derived anew only after a key update."""

    def __init__(self) -> None:
        self._keys: Keys | None = None

    def keys(self, context: CryptoContext) -> Keys | None:
        """The current keys; None while there are none, or for a cipher that is not AES-GCM."""
        secret = context.secret
        if secret is None or context.cipher_suite not in _SUITES:
            return None
        keys = self._keys
        if keys is None or keys.secret is not secret:
            keys = self._keys = Keys(context, secret)
        return keys
