"""Mutual TLS for aioquic, and the settings of a mesh connection.

As shipped, aioquic accepts clients with no certificate and with any certificate. Here both sides
demand one and refuse the peer inside the handshake, right after TLS has proven that the peer holds
its key: a refused peer never opens a stream.
"""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import datetime

from aioquic import tls
from aioquic._buffer import Buffer
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.packet import QuicProtocolVersion
from cryptography import x509

from quafka_mesh_ops.errors import PeerRefusedError
from quafka_mesh_ops.identity import Identity
from quafka_mesh_ops.node_ids import NodeId
from quafka_mesh_ops.transport.congestion import MESH

ALPN = "quafka-mesh/1"
OTHER_MESH = (
    f"the peer does not speak {ALPN}, and so is of another version: upgrade brokers before "
    "gateways, and roll gateways back before brokers"
)
IDLE_TIMEOUT = 5.0
MAX_DATA = 64 << 20
MAX_STREAM_DATA = 32 << 20

VerifyPeer = Callable[[x509.Certificate | None], NodeId]


def quic_configuration(
    identity: Identity, now: datetime, *, is_client: bool, datagram_size: int
) -> QuicConfiguration:
    """Make the settings of one connection, with a certificate of its own: they are short-lived."""
    certificate, key = identity.certificate(now)
    return QuicConfiguration(
        alpn_protocols=[ALPN],
        congestion_control_algorithm=MESH,
        idle_timeout=IDLE_TIMEOUT,
        is_client=is_client,
        max_data=MAX_DATA,
        max_stream_data=MAX_STREAM_DATA,
        max_datagram_size=datagram_size,
        supported_versions=[QuicProtocolVersion.VERSION_1],
        # AES-128 first: the cheaper of the two, and both are strong enough.
        cipher_suites=[
            tls.CipherSuite.AES_128_GCM_SHA256,
            tls.CipherSuite.AES_256_GCM_SHA384,
        ],
        certificate=certificate,
        private_key=key,
        # The check of aioquic needs an authority; `MutualContext` judges every certificate instead.
        verify_mode=ssl.CERT_NONE,
    )


class PeerRefusedAlert(tls.Alert):
    """Ends the handshake with a peer that `MutualContext.judge` refuses."""

    description = tls.AlertDescription.access_denied


class MutualContext(tls.Context):
    """TLS 1.3 that demands a certificate from both sides and passes it to `judge`."""

    def __init__(
        self,
        made: tls.Context,
        judge: Callable[[x509.Certificate | None], None],
        refused: Callable[[PeerRefusedError], None],
    ) -> None:
        """Take over from `made`, which aioquic makes itself, before its first message.

        `refused`: called if the client speaks no version of the mesh that we know.
        """
        self.__dict__.update(made.__dict__)
        self._request_client_certificate = True
        self.judge = judge
        self.refused = refused

    def _server_handle_hello(
        self, input_buf: Buffer, initial_buf: Buffer, handshake_buf: Buffer
    ) -> None:
        try:
            super()._server_handle_hello(input_buf, initial_buf, handshake_buf)
        except tls.AlertNoApplicationProtocol as e:
            self.refused(PeerRefusedError(OTHER_MESH))
            raise tls.AlertNoApplicationProtocol(OTHER_MESH) from e

    def _server_handle_certificate(self, input_buf: Buffer) -> None:
        super()._server_handle_certificate(input_buf)
        if self.state != tls.State.SERVER_EXPECT_CERTIFICATE_VERIFY:
            self.judge(None)

    def _check_certificate_verify_signature(self, verify: tls.CertificateVerify) -> None:
        super()._check_certificate_verify_signature(verify)
        self.judge(self._peer_certificate)
