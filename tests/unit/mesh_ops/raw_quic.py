"""Stock aioquic peers, with any certificate and bytes that a test chooses."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import NetworkAddress
from aioquic.quic.events import ConnectionTerminated, QuicEvent, StreamDataReceived
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

from quafka_loop import clock
from quafka_mesh_ops.identity import Identity

Credentials = tuple[x509.Certificate, PrivateKeyTypes]


class RawClient(QuicConnectionProtocol):
    """Records the events of the server."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.closed_with: ConnectionTerminated | None = None
        self.received = bytearray()
        self.end = asyncio.Event()
        self.data = asyncio.Event()

    def datagram_received(self, data: bytes | str, addr: NetworkAddress) -> None:
        super().datagram_received(data, addr)
        # The event comes only after three probe timeouts: on a busy machine, many seconds.
        if self._quic._close_event is not None:
            self.closed_with = self._quic._close_event
            self.end.set()

    def quic_event_received(self, event: QuicEvent) -> None:
        if isinstance(event, StreamDataReceived):
            self.received += event.data
            self.data.set()

    def send(self, stream_id: int, data: bytes, end_stream: bool = False) -> None:
        self._quic.send_stream_data(stream_id, data, end_stream)
        self.transmit()

    def reset(self, stream_id: int) -> None:
        self._quic.send_stream_data(stream_id, b"\x01")
        self._quic.reset_stream(stream_id, 0)
        self.transmit()


def credentials(identity: Identity) -> Credentials:
    return identity.certificate(clock.utc_now())


@asynccontextmanager
async def raw_client(
    port: int, shown: Credentials | None, alpn: str = "quafka-mesh/1"
) -> AsyncIterator[RawClient]:
    """A stock client that has completed its side of the handshake with 127.0.0.1:port."""
    configuration = QuicConfiguration(
        alpn_protocols=[alpn], verify_mode=ssl.CERT_NONE, is_client=True, idle_timeout=5
    )
    if shown is not None:
        configuration.certificate, configuration.private_key = shown
    async with connect(
        "127.0.0.1", port, configuration=configuration, create_protocol=RawClient
    ) as client:
        yield cast(RawClient, client)
