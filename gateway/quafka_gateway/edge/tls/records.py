"""TLS records on their way into a handshake. Pure.

A handshake runs in a thread, so it is continued once per whole record and not once per byte.
Anything but TLS is recognised by its first bytes, before OpenSSL or a thread sees it.
"""

from __future__ import annotations

MOST_BYTES = 128 << 10
"""Bytes of one handshake: a client's chain of certificates is a few KiB."""
_HEADER = 5
_HANDSHAKE = 22
_KINDS = range(20, 24)
_LONGEST = (16 << 10) + 2_048  # RFC 5246, 6.2.3
_HTTP = (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI")


class NotTlsError(Exception):
    """The bytes are not a TLS handshake."""


class HandshakeRecords:
    """Collects bytes until a record is whole."""

    __slots__ = ("_held", "_total")

    def __init__(self) -> None:
        self._held = b""
        self._total = 0

    def feed(self, data: bytes) -> bytes:
        """Add the bytes that arrived; return the records that are whole now.

        Raises:
            NotTlsError: they are not TLS records, or are too many.
        """
        if not self._total:
            _check_first(self._held + data)
        held = self._held = self._held + data
        at = 0
        while len(held) - at >= _HEADER:
            size = int.from_bytes(held[at + 3 : at + _HEADER], "big")
            if held[at] not in _KINDS or held[at + 1] != 3 or size > _LONGEST:
                raise NotTlsError("not TLS records")
            if len(held) - at < _HEADER + size:
                break
            at += _HEADER + size
        self._total += at
        if self._total > MOST_BYTES:
            raise NotTlsError(f"a TLS handshake of more than {MOST_BYTES} bytes")
        self._held = held[at:]
        return held[:at]

    @property
    def rest(self) -> bytes:
        """The bytes of the record that is not whole yet."""
        return self._held


def _check_first(head: bytes) -> None:
    """Refuse what cannot become a handshake."""
    if head[:1] == bytes([_HANDSHAKE]) and head[1:2] in (b"", b"\x03"):
        return
    if head[:4] in _HTTP:
        raise NotTlsError("an HTTP request: this port speaks the Kafka protocol over TLS")
    if head[:1] == b"\0":
        raise NotTlsError("a request without TLS: this port speaks the Kafka protocol over TLS")
    raise NotTlsError("not a TLS handshake")
