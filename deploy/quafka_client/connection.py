"""One connection to a Kafka server: requests and answers, each with a time limit.

API versions are negotiated on connecting. ApiVersions names `quafka` as the client software
(KIP-511), so that a gateway also lists the APIs that only this command uses.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import struct
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeVar

from quafka_client.errors import (
    ClientError,
    LoginError,
    NotKafkaError,
    UnreachableError,
    UnsupportedError,
    sentence,
)
from quafka_client.sasl import Credentials, Login, SaslError
from quafka_client.security import NONE, ClientSecurity
from quafka_loop import clock
from quafka_mesh_ops.settings import join_address
from quafka_proto.codec import decode
from quafka_proto.errors import ErrorCode, Malformed
from quafka_proto.headers import decode_response_header, encode_request
from quafka_proto.message import Request, Response
from quafka_proto.schema.api_versions import ApiVersionsRequest, ApiVersionsResponse
from quafka_proto.schema.quafka import CLIENT_SOFTWARE
from quafka_proto.schema.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from quafka_telemetry.version import version

CLIENT_ID = "quafka-cli"
"""Of the command, unless a program has a client id of its own."""
_MAX_ANSWER = 128 << 20
_PLAIN_CHUNK = 1 << 16
_TLS_PROBE_SECONDS = 2.0
_NEWEST = 32767
_TLS_ALERT = b"\x15\x03"
_USE_TLS = (
    "{} speaks TLS; set security.protocol to SSL or SASL_SSL in --command-config, or name another "
    "listener with --brokers"
)

R = TypeVar("R", bound=Response)


@dataclass(slots=True, eq=False)
class ClientConnection:
    """A connection with the server's API versions. One request at a time."""

    host: str
    port: int
    timeout: float
    security: ClientSecurity = NONE
    versions: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    """The server's least and greatest version of each API."""
    certificate_ends: float | None = None
    """When the server's certificate expires, in seconds since the epoch; None: not TLS."""
    connect_seconds: float = 0.0
    last_seconds: float = 0.0
    """How long connecting and the last request took."""
    _reader: asyncio.StreamReader | None = None
    _writer: asyncio.StreamWriter | None = None
    _correlation_id: int = 0
    _answered: bool = False
    client_id: str = CLIENT_ID
    reopens: bool = False
    """Whether a request opens a connection that was lost."""
    left: bool = False
    """Whether it was given up: no request opens it again."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def address(self) -> str:
        """host:port."""
        return join_address(self.host, self.port)

    async def open(self) -> None:
        """Connect, log in if credentials are given, and negotiate the API versions.

        Raises:
            UnreachableError, NotKafkaError: the connection cannot be used.
            LoginError: the server is not the expected one, or refuses the login.
        """
        began = clock.perf_counter()
        with self._explained():
            async with asyncio.timeout(self.timeout):
                self._reader, self._writer = await asyncio.open_connection(
                    self.host,
                    self.port,
                    limit=_PLAIN_CHUNK,
                    ssl=self.security.context,
                    server_hostname=None if self.security.context is None else self.host,
                )
        self.connect_seconds = clock.perf_counter() - began
        self.certificate_ends = _expiry(self._writer)
        try:
            await self._negotiate()
            if self.security.credentials is not None:
                await self._log_in(self.security.credentials)
                await self._negotiate()  # an authenticated client may be offered more APIs
        except BaseException:
            await self.close()
            raise

    @contextmanager
    def _explained(self) -> Generator[None]:
        """Turn the errors of connecting into sentences."""
        try:
            yield
        except socket.gaierror as e:
            raise UnreachableError(
                f"the name {self.host!r} cannot be resolved ({e.strerror}); "
                "correct it, or add it to DNS or /etc/hosts"
            ) from e
        except ConnectionRefusedError as e:
            raise UnreachableError(
                f"nothing listens on {self.address}; start the server (`quafka up`), "
                "or name another with --brokers"
            ) from e
        except TimeoutError as e:
            raise UnreachableError(
                f"{self.address} does not answer within {self.timeout:g} s; "
                "check the address, and that no firewall blocks it"
            ) from e
        except ssl.SSLError as e:
            raise _tls_error(self.address, e) from e
        except (OSError, UnicodeError) as e:
            if self.security.context is not None and isinstance(e, ConnectionError):
                raise _tls_error(self.address, e) from e
            reason = os.strerror(e.errno) if isinstance(e, OSError) and e.errno else str(e)
            raise UnreachableError(f"cannot connect to {self.address}: {reason}") from e

    async def close(self) -> None:
        """Disconnect."""
        if self._writer is not None:
            self._writer.close()
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._writer.wait_closed()
            self._writer = None

    # --- requests ---------------------------------------------------------------------------

    def has(self, request: type[Request]) -> bool:
        """Whether client and server have a version of the API in common."""
        return self._version(request) is not None

    def version_of(self, request: type[Request]) -> int:
        """The newest version of a request that client and server have in common.

        Raises:
            UnsupportedError: they have none in common.
        """
        best = self._version(request)
        if best is None:
            name = request.__name__.removesuffix("Request")
            raise UnsupportedError(
                f"the server at {self.address} does not support {name} (API {request.api_key}); "
                "upgrade the server"
            )
        return best

    def _version(self, request: type[Request]) -> int | None:
        low, high = self.versions.get(request.api_key, (0, -1))
        best = min(high, request.versions.high)
        return best if best >= max(low, request.versions.low) else None

    async def call(self, request: Request, answer: type[R], newest: int = _NEWEST) -> R:
        """Send a request in the newest common version up to `newest`, and wait for its answer.

        Raises:
            UnsupportedError: the server does not have the API.
            UnreachableError, NotKafkaError: no answer, or a malformed one.
            ClientError: the protocol cannot carry a value of the request, such as a long name.
        """
        if self.reopens and not self.left and (self._writer is None or self._opening.locked()):
            async with self._opening:  # also if another request is still negotiating
                if self._writer is None:
                    await self.open()
        if self.left:
            await self.close()
            raise UnreachableError("the connection was given up; sign in again")
        return await self._call(request, answer, newest)

    async def _call(self, request: Request, answer: type[R], newest: int = _NEWEST) -> R:
        """As `call`, over the connection that is open, or being opened by the caller."""
        best = min(newest, self.version_of(type(request)))
        name = type(request).__name__.removesuffix("Request")
        try:
            async with asyncio.timeout(self.timeout), self._turn:
                began = clock.perf_counter()
                frame = await self._exchange(request, best)
                self.last_seconds = clock.perf_counter() - began
        except TimeoutError as e:
            raise UnreachableError(
                f"{self.address} does not answer {name} within {self.timeout:g} s; "
                "run `quafka doctor` to check its broker"
            ) from e
        except (OSError, EOFError) as e:
            raise UnreachableError(
                f"{self.address} closed the connection on {name}; {self._why_closed()}"
            ) from e
        except Malformed as e:
            raise NotKafkaError(f"{self.address} sent a malformed answer to {name}: {e}") from e
        try:
            _, at = decode_response_header(answer, best, frame)
            decoded = decode(answer, best, frame, at)
        except Malformed as e:
            raise NotKafkaError(f"{self.address} sent a malformed answer to {name}: {e}") from e
        self._answered = True
        return decoded

    def _why_closed(self) -> str:
        if self.security.credentials is None and not self._answered:
            return "if it requires a login, configure one in --command-config; or read its log"
        return "read the server's log"

    async def _exchange(self, request: Request, version: int) -> bytes:
        reader, writer = self._reader, self._writer
        if reader is None or writer is None:
            raise EOFError
        self._correlation_id += 1
        number = self._correlation_id
        try:
            frame = encode_request(number, self.client_id, request, version)
        except (ValueError, struct.error) as e:
            name = type(request).__name__.removesuffix("Request")
            raise ClientError(f"a value of {name} cannot be sent: {e}") from e
        try:
            writer.writelines(frame)
            await writer.drain()
            return await self._answer(reader, number)
        except BaseException:
            # Also if it is cancelled: the next request would take the answer for its own.
            writer.close()
            if self._writer is writer:
                self._writer = None
            raise

    async def _answer(self, reader: asyncio.StreamReader, number: int) -> bytes:
        head = await reader.readexactly(4)
        size = int.from_bytes(head, "big")
        if size > _MAX_ANSWER:
            raise NotKafkaError(
                f"{self.address} is not Kafka: {_protocol(head)}; name Kafka's port with --brokers"
                if head[:2] != _TLS_ALERT
                else _USE_TLS.format(self.address)
            )
        answer = await reader.readexactly(size)
        if answer[:4] != number.to_bytes(4, "big"):
            raise Malformed("it is of another request")
        return answer

    # --- connecting -------------------------------------------------------------------------

    async def _negotiate(self) -> None:
        request = ApiVersionsRequest(
            client_software_name=CLIENT_SOFTWARE, client_software_version=version()
        )
        try:
            async with asyncio.timeout(self.timeout):
                frame = await self._exchange(request, 3)
            # A server without this version answers in version 0 (KIP-511).
            code = int.from_bytes(frame[4:6], "big", signed=True)
            known = 0 if code == ErrorCode.UNSUPPORTED_VERSION else 3
            _, at = decode_response_header(ApiVersionsResponse, known, frame)
            answer = decode(ApiVersionsResponse, known, frame, at)
        except TimeoutError as e:
            raise NotKafkaError(
                f"{self.address} accepts connections but answers nothing within "
                f"{self.timeout:g} s: it is not Kafka, or it hangs; name Kafka's port with "
                "--brokers"
            ) from e
        except ssl.SSLError as e:  # TLS 1.3 refuses a client's certificate after the handshake
            raise _tls_error(self.address, e) from e
        except (EOFError, OSError) as e:
            raise NotKafkaError(await self._explain_closing()) from e
        except Malformed as e:
            raise NotKafkaError(
                f"{self.address} is not Kafka: its first answer is malformed; "
                "name Kafka's port with --brokers"
            ) from e
        self.versions = {
            each.api_key: (each.min_version, each.max_version) for each in answer.api_keys
        }

    async def _log_in(self, credentials: Credentials) -> None:
        """SaslHandshake, then SaslAuthenticate until the mechanism is done."""
        mechanism = credentials.mechanism
        handshake = await self._first_call(
            SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse
        )
        if handshake.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(handshake.mechanisms) or "none"
            raise LoginError(
                f"{self.address} does not accept sasl.mechanism {mechanism}; it offers {offered}"
            )
        if handshake.error_code:
            raise LoginError(self._no_login(handshake.error_code, None))
        login = credentials.login()
        try:
            message = await asyncio.to_thread(_advance, login, None)
            while message is not None:
                answer = await self._first_call(
                    SaslAuthenticateRequest(auth_bytes=message), SaslAuthenticateResponse
                )
                if answer.error_code:
                    raise LoginError(self._no_login(answer.error_code, answer.error_message))
                message = await asyncio.to_thread(_advance, login, bytes(answer.auth_bytes))
        except SaslError as e:
            raise LoginError(f"{self.address}: {e}") from e

    async def _first_call(self, request: Request, answer: type[R]) -> R:
        """A request of the login; a connection that closes during it is a failed login."""
        try:
            return await self._call(request, answer)
        except UnreachableError as e:
            if "closed the connection" not in str(e):
                raise
            raise LoginError(
                f"{self.address} closed the connection during the login; "
                "try again in a moment, check security.protocol, and read the server's log"
            ) from e

    def _no_login(self, code: int, message: str | None) -> str:
        if code == ErrorCode.ILLEGAL_SASL_STATE:
            return (
                f"{self.address} does not require a login; set security.protocol to "
                "PLAINTEXT or SSL, or name another listener with --brokers"
            )
        bearer = self.security.credentials and self.security.credentials.token
        what = "the token" if bearer else "the user name and the password"
        return f"{self.address} refuses the login: {sentence(code, message)}; check {what}"

    async def _explain_closing(self) -> str:
        if self.security.context is None and await _speaks_tls(self.host, self.port):
            return _USE_TLS.format(self.address)
        return (
            f"{self.address} closes the connection on the first request: it is not Kafka, or "
            "refuses this client; name Kafka's port with --brokers"
        )


def _advance(login: Login, message: bytes | None) -> bytes | None:
    """The client's next message; None: the login is complete."""
    try:
        return next(login) if message is None else login.send(message)
    except StopIteration:
        return None


def _expiry(writer: asyncio.StreamWriter) -> float | None:
    certificate = writer.get_extra_info("peercert")
    ends = certificate.get("notAfter") if certificate else None
    return None if ends is None else ssl.cert_time_to_seconds(ends)


def _tls_error(address: str, error: Exception) -> ClientError:
    """A failed TLS handshake in a sentence."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return LoginError(
            f"the certificate of {address} is not accepted: {error.verify_message.rstrip('.')}; "
            "check ssl.truststore.location (or ssl.ca.location) and the host name"
        )
    reason = getattr(error, "reason", None) or ""
    if "WRONG_VERSION_NUMBER" in reason or "RECORD_LAYER" in reason:
        return NotKafkaError(
            f"{address} does not speak TLS; set security.protocol to PLAINTEXT or "
            "SASL_PLAINTEXT, or name another listener with --brokers"
        )
    if "CERTIFICATE" in reason or "ALERT" in reason:
        words = reason.lower().replace("_", " ")
        return LoginError(
            f"{address} refuses the TLS handshake ({words}); it may require a client certificate: "
            "ssl.keystore.location"
        )
    if isinstance(error, ConnectionError):
        what = "closes the connection during the TLS handshake"
    else:
        what = f"fails in the TLS handshake ({reason.lower().replace('_', ' ') or error})"
    return LoginError(
        f"{address} {what}; check that the listener speaks TLS, in a version of "
        "ssl.enabled.protocols"
    )


def _protocol(head: bytes) -> str:
    if head in (b"HTTP", b"<htm", b"<!DO"):
        return "it is a web server"
    if head[:4] == b"SSH-":
        return "it is an SSH server"
    return "its first answer is malformed"


async def _speaks_tls(host: str, port: int) -> bool:
    """Whether a TLS handshake gets as far as the certificate, or is refused by a TLS alert."""
    try:
        async with asyncio.timeout(_TLS_PROBE_SECONDS):
            _, writer = await asyncio.open_connection(host, port, ssl=ssl.create_default_context())
    except ssl.SSLCertVerificationError:
        return True
    except ssl.SSLError as e:
        return "ALERT" in (e.reason or "")
    except (OSError, EOFError):  # a timeout is an OSError
        return False
    writer.close()
    return True
