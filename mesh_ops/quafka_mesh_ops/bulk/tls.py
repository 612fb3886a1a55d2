"""Mutual TLS 1.3 between two nodes that know each other from their QUIC connection.

Both sides have received the other's certificate over QUIC, and `verify_peer` has accepted it. A
context trusts exactly that certificate and demands it, so OpenSSL itself refuses a peer with no
certificate, with any other one or with an expired one, before a byte of data is exchanged.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Collection
from typing import cast

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from quafka_loop import clock
from quafka_mesh_ops.errors import PeerRefusedError
from quafka_mesh_ops.identity import verify_peer
from quafka_mesh_ops.node_ids import NodeId
from quafka_mesh_ops.ops.base import Buffer

_SHORT = 1 << 10
"""Bytes that `read` decrypts at a time: tokens and acknowledgements."""


Credentials = tuple[x509.Certificate, Ed25519PrivateKey]
"""A certificate and its key, from `Identity.certificate`."""


def encoded(credentials: Credentials) -> bytes:
    """Return the certificate to send to the peer over QUIC, DER."""
    return credentials[0].public_bytes(Encoding.DER)


def check_certificate(der: bytes, peer: NodeId, allowed: Collection[NodeId]) -> None:
    """Check a certificate that arrived over the QUIC connection with the node `peer`.

    Raises:
        PeerRefusedError: it is not a valid certificate of that node, or the node is not allowed.
    """
    try:
        certificate = x509.load_der_x509_certificate(der)
    except ValueError as e:
        raise PeerRefusedError("its certificate cannot be read") from e
    if verify_peer(certificate, clock.utc_now(), allowed) != peer:
        raise PeerRefusedError("its certificate is another node's")


def tls_context(
    credentials: Credentials, peer_certificate: bytes, *, server_side: bool
) -> ssl.SSLContext:
    """Make a context for one connection with the node that holds `peer_certificate` (DER).

    Raises:
        PeerRefusedError: OpenSSL cannot use the certificate.
    """
    side = ssl.PROTOCOL_TLS_SERVER if server_side else ssl.PROTOCOL_TLS_CLIENT
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the key is the name
    context.verify_mode = ssl.CERT_REQUIRED
    if server_side:
        context.num_tickets = 0  # every connection needs an offer of its own
    try:
        context.load_verify_locations(cadata=peer_certificate)
    except ssl.SSLError as e:
        raise PeerRefusedError("its certificate cannot be used") from e
    _load_key(context, *credentials)
    return context


def _load_key(
    context: ssl.SSLContext, certificate: x509.Certificate, key: Ed25519PrivateKey
) -> None:
    """Load our certificate and key. Python's ssl reads files only; this one is in memory."""
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    descriptor = os.memfd_create("node key", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(certificate.public_bytes(Encoding.PEM) + pem)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


class TlsPipe:
    """One side of a TLS connection, without I/O.

    Attributes:
        established: whether the handshake is done on this side, and the peer is authenticated.
    """

    def __init__(
        self, context: ssl.SSLContext, peer_certificate: bytes, *, server_side: bool
    ) -> None:
        self.established = False
        self._peer_certificate = peer_certificate
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)
        # With a buffer, `read` returns the number of bytes; its stub knows bytearrays only.
        self._read_into = cast("Callable[[int, memoryview], int]", self._tls.read)

    def receive(self, data: Buffer) -> None:
        """Accept bytes from the peer.

        Raises:
            PeerRefusedError: the peer is not the one that the context trusts.
        """
        self._incoming.write(data)
        if not self.established:
            self._shake_hands()

    def read_into(self, buffer: memoryview) -> int:
        """Decrypt at most a record into the beginning of `buffer`; 0: no more has arrived.

        Raises:
            ConnectionError: the data was damaged on its way, or the peer has ended the connection.
        """
        if not self.established:
            return 0
        try:
            count = self._read_into(len(buffer), buffer)
        except ssl.SSLWantReadError:
            return 0
        except ssl.SSLError as e:
            raise ConnectionAbortedError(f"TLS: {e.reason or e}") from e
        if not count:
            raise ConnectionAbortedError("the peer closed the TLS connection")
        return count

    def read(self) -> bytes:
        """Decrypt all that has arrived. Raises ConnectionError."""
        found = bytearray()
        buffer = memoryview(bytearray(_SHORT))
        while count := self.read_into(buffer):
            found += buffer[:count]
        return bytes(found)

    def begin(self) -> None:
        """Start the handshake, as a client."""
        self._shake_hands()

    def write(self, data: Buffer) -> None:
        """Encrypt data, for `to_send`."""
        at, view = 0, memoryview(data)
        while at < len(view):
            at += self._tls.write(view[at:])

    def to_send(self) -> bytes:
        """Remove and return the bytes for the peer."""
        return self._outgoing.read()

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError as e:
            raise PeerRefusedError(f"the TLS handshake failed: {e.reason or e}") from e
        if self._tls.getpeercert(binary_form=True) != self._peer_certificate:
            raise PeerRefusedError("it presented another certificate than over QUIC")
        self.established = True
