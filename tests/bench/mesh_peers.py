"""What the mesh is measured beside: the same bytes over TCP, TLS 1.3 and qh3.

The protocol is the least there can be: four bytes ask for so many. Over TCP and TLS there are as
many connections as asked for at a time; over qh3 one, with a stream for each request.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import ssl
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from quafka_loop import clock

QH3_SIZES = (1452, 8900)
Ask = Callable[[int], Awaitable[None]]


def certificate(folder: Path) -> tuple[Path, Path]:
    """A fresh certificate and its key as files; of P-256, since qh3's client takes no Ed25519."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bench")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(clock.utc_now() - timedelta(days=1))
        .not_valid_after(clock.utc_now() + timedelta(days=1))
        .sign(key, SHA256())
    )
    chain, secret = folder / "cert.pem", folder / "key.pem"
    chain.write_bytes(made.public_bytes(Encoding.PEM))
    secret.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return chain, secret


# --- TCP and TLS ------------------------------------------------------------------------------


async def serve_streams(largest: int, *, tls: bool) -> None:
    """Over TCP, or TLS over it, until killed."""
    blob = memoryview(os.urandom(largest))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while asked := await reader.read(4):
            writer.write(blob[: int.from_bytes(asked, "big")])
            await writer.drain()

    context = None
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as folder:
            context.load_cert_chain(*certificate(Path(folder)))
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


@asynccontextmanager
async def streams(port: int, *, tls: bool) -> AsyncGenerator[Ask]:
    """Connections are opened as they are needed."""
    context = None
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(reply: int) -> None:
        pair = free.pop() if free else None
        if pair is None:
            pair = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        reader, writer = pair
        writer.write(reply.to_bytes(4, "big"))
        left = reply
        while left:
            left -= len(await reader.read(left))
        free.append(pair)

    yield ask
    for _, writer in free:
        writer.close()


# --- qh3, without types -----------------------------------------------------------------------


def _qh3(module: str) -> Any:
    return importlib.import_module(f"qh3.{module}")


def _qh3_configuration(size: int, *, is_client: bool) -> Any:
    return _qh3("quic.configuration").QuicConfiguration(
        alpn_protocols=["bench"],
        is_client=is_client,
        max_datagram_size=size,
        max_data=64 << 20,
        max_stream_data=32 << 20,
        verify_mode=ssl.CERT_NONE,
    )


async def serve_qh3(largest: int, *, size: int) -> None:
    """One stream for each request, until killed."""
    blob = os.urandom(largest)
    asyncio_of = _qh3("asyncio")
    stream_data = _qh3("quic.events").StreamDataReceived

    class Server(asyncio_of.QuicConnectionProtocol):  # type: ignore[misc, name-defined]
        def quic_event_received(self, event: Any) -> None:
            if isinstance(event, stream_data) and event.data:
                answer = blob[: int.from_bytes(event.data, "big")]
                self._quic.send_stream_data(event.stream_id, answer, end_stream=True)
                self.transmit()

    configuration = _qh3_configuration(size, is_client=False)
    with tempfile.TemporaryDirectory() as folder:
        configuration.load_cert_chain(*certificate(Path(folder)))
    server = await asyncio_of.serve(
        "127.0.0.1", 0, configuration=configuration, create_protocol=Server
    )
    print(server._transport.get_extra_info("sockname")[1], flush=True)
    await asyncio.Event().wait()


@asynccontextmanager
async def qh3(port: int, *, size: int) -> AsyncGenerator[Ask]:
    """One connection."""
    asyncio_of = _qh3("asyncio")
    stream_data = _qh3("quic.events").StreamDataReceived
    ends: dict[int, asyncio.Future[None]] = {}

    class Client(asyncio_of.QuicConnectionProtocol):  # type: ignore[misc, name-defined]
        def quic_event_received(self, event: Any) -> None:
            if isinstance(event, stream_data) and event.end_stream:
                ends.pop(event.stream_id).set_result(None)

    configuration = _qh3_configuration(size, is_client=True)
    async with asyncio_of.connect(
        "127.0.0.1", port, configuration=configuration, create_protocol=Client
    ) as client:

        async def ask(reply: int) -> None:
            stream = client._quic.get_next_available_stream_id()
            end = ends[stream] = asyncio.get_running_loop().create_future()
            client._quic.send_stream_data(stream, reply.to_bytes(4, "big"), end_stream=True)
            client.transmit()
            await end

        yield ask


SERVERS: dict[str, Callable[[int], Coroutine[Any, Any, None]]] = {
    "tcp": partial(serve_streams, tls=False),
    "tls": partial(serve_streams, tls=True),
    **{f"qh3-{size}": partial(serve_qh3, size=size) for size in QH3_SIZES},
}
CLIENTS: dict[str, Callable[[int], AbstractAsyncContextManager[Ask]]] = {
    "tcp": partial(streams, tls=False),
    "tls": partial(streams, tls=True),
    **{f"qh3-{size}": partial(qh3, size=size) for size in QH3_SIZES},
}
