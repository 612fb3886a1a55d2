"""The states of a connection before a client has authenticated, as in Kafka. No I/O.

Until an exchange is complete a connection carries ApiVersions (once), SaslHandshake, and the tokens
of one mechanism: in SaslAuthenticate requests after handshake 1, as bare frames after handshake 0
(KIP-43, KIP-152). Of any other request only the API's number is read. Re-authentication (KIP-368)
is the same exchange again, for the same name by the same mechanism.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from quafka_gateway.security.sasl.mechanism import (
    Account,
    AuthenticationError,
    MechanismServer,
)
from quafka_proto.codec import decode_front
from quafka_proto.errors import ErrorCode, Malformed, UnsupportedVersion
from quafka_proto.headers import RequestHeader, decode_request_header, encode_response
from quafka_proto.message import Buffer, Message, Request
from quafka_proto.schema.api_versions import ApiVersionsRequest
from quafka_proto.schema.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

HANDSHAKE_KEY = SaslHandshakeRequest.api_key
_API_KEY = struct.Struct(">h")
_SIZE = struct.Struct(">i")
_SHORT = 8 << 10
"""Bytes of a request other than SaslAuthenticate."""


class LoginState(Enum):
    """What a connection may send next."""

    VERSIONS_OR_HANDSHAKE = auto()
    HANDSHAKE = auto()
    TOKENS = auto()  # in SaslAuthenticate requests
    BARE_TOKENS = auto()
    COMPLETE = auto()
    FAILED = auto()


_ACCEPTED: Mapping[LoginState, tuple[type[Request], ...]] = {
    LoginState.VERSIONS_OR_HANDSHAKE: (ApiVersionsRequest, SaslHandshakeRequest),
    LoginState.HANDSHAKE: (SaslHandshakeRequest,),
    LoginState.TOKENS: (SaslAuthenticateRequest,),
}


@dataclass(frozen=True, slots=True)
class Step:
    """What follows from one frame.

    Attributes:
        response: to be sent; after a failure only when its delay is over. Empty: nothing.
        account: set when the client has authenticated.
        lifetime: with the account: seconds for which it holds; None: for ever.
        failure: why the connection must be closed; "" if it goes on. It has no secret.
        user: after a failure: the name that the client gave, if it has given one.
    """

    response: list[Buffer] = field(default_factory=list[Buffer])
    account: Account | None = None
    lifetime: float | None = None
    failure: str = ""
    user: str = ""


class Previous(NamedTuple):
    """Who the client was: re-authentication may not change it."""

    mechanism: str
    org_id: int
    name: str


@dataclass(frozen=True, slots=True)
class LoginOffer:
    """What a listener offers.

    Attributes:
        mechanisms: makes the server of each mechanism, by its name.
        versions: answers ApiVersions of a version; None: of one that is unknown.
        lifetime: seconds for which an account holds, of a mechanism; None: for ever.
    """

    mechanisms: Mapping[str, Callable[[], MechanismServer]]
    versions: Callable[[RequestHeader, ApiVersionsRequest | None], Awaitable[Message]]
    lifetime: Callable[[Account], float | None]


class Authenticator:
    """One authentication of one connection. Give it one frame at a time."""

    def __init__(self, offer: LoginOffer, previous: Previous | None = None) -> None:
        """`previous`: this is a re-authentication."""
        self._offer = offer
        self._previous = previous
        self._server: MechanismServer | None = None
        self.mechanism = ""
        """The mechanism that the client has chosen; "" before it has."""
        self.state = LoginState.VERSIONS_OR_HANDSHAKE if previous is None else LoginState.HANDSHAKE

    async def receive(self, frame: bytes) -> Step:
        """Take a frame, without its length prefix.

        Raises:
            BusyError: no credentials can be checked now.
        """
        if self.state is LoginState.BARE_TOKENS:
            step = await self._bare_token(frame)
        elif self.state in _ACCEPTED:
            try:
                step = await self._request(frame)
            except Malformed as e:
                step = Step(failure=str(e))
        else:
            step = Step(failure="a frame after the end of an authentication")
        if step.failure:
            self.state = LoginState.FAILED
        elif step.account is not None:
            self.state = LoginState.COMPLETE
        return step

    async def _request(self, frame: bytes) -> Step:
        if len(frame) < _API_KEY.size:
            return Step(failure="not a Kafka request")
        (key,) = _API_KEY.unpack_from(frame)
        accepted = next((each for each in _ACCEPTED[self.state] if each.api_key == key), None)
        if accepted is None:
            return Step(failure=f"a request with API key {key} before authentication")
        if accepted is not SaslAuthenticateRequest and len(frame) > _SHORT:
            return Step(failure="a long request before authentication")
        try:
            header, at = decode_request_header(frame)
        except UnsupportedVersion as e:
            if accepted is not ApiVersionsRequest:
                return Step(failure=f"{accepted.__name__} version {e.api_version} is unknown")
            header = RequestHeader(key, 0, e.correlation_id, None)
            return _answer(header, await self._offer.versions(header, None))
        request, _ = decode_front(accepted, header.api_version, frame, at)
        if isinstance(request, ApiVersionsRequest):
            answer = await self._offer.versions(header, request)
            self.state = LoginState.HANDSHAKE
            return _answer(header, answer)
        if isinstance(request, SaslHandshakeRequest):
            return self._handshake(header, request)
        assert isinstance(request, SaslAuthenticateRequest)
        return await self._token(header, request)

    def _handshake(self, header: RequestHeader, request: SaslHandshakeRequest) -> Step:
        offered = list(self._offer.mechanisms)
        make = self._offer.mechanisms.get(request.mechanism)
        if make is None:
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            refusal = SaslHandshakeResponse(error_code=code, mechanisms=offered)
            return _answer(header, refusal, f"mechanism {request.mechanism[:64]!r} is not offered")
        self.mechanism = request.mechanism
        self.state = LoginState.TOKENS if header.api_version else LoginState.BARE_TOKENS
        self._server = make()
        return _answer(header, SaslHandshakeResponse(mechanisms=offered))

    async def _token(self, header: RequestHeader, request: SaslAuthenticateRequest) -> Step:
        try:
            token, account = await self._evaluate(request.auth_bytes)
        except AuthenticationError as e:
            refusal = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
                error_message=e.told or f"{self.mechanism}: the credentials are not valid",
                auth_bytes=b"",
            )
            return _answer(header, refusal, str(e), e.user)
        response = SaslAuthenticateResponse(auth_bytes=token)
        lifetime = None if account is None else self._offer.lifetime(account)
        if lifetime is not None and header.api_version:
            response.session_lifetime_ms = max(1, int(lifetime * 1000))
        encoded = encode_response(header.correlation_id, response, header.api_version)
        return Step(encoded, account, lifetime)

    async def _bare_token(self, frame: bytes) -> Step:
        try:
            token, account = await self._evaluate(frame)
        except AuthenticationError as e:
            return Step(failure=str(e), user=e.user)
        lifetime = None if account is None else self._offer.lifetime(account)
        return Step([_SIZE.pack(len(token)) + token], account, lifetime)

    async def _evaluate(self, token: bytes) -> tuple[bytes, Account | None]:
        assert self._server is not None, "a handshake has made it"
        before = self._previous
        if before is not None and before.mechanism != self.mechanism:
            told = f"re-authentication must use {before.mechanism}, as the authentication did"
            raise AuthenticationError(told, told)
        reply = await self._server.evaluate(token)
        account = reply.account
        if before is not None and account is not None and before[1:] != account[:2]:
            told = "re-authentication must not change the principal"
            raise AuthenticationError(told, told)
        return reply.token, account


def _answer(header: RequestHeader, response: Message, failure: str = "", user: str = "") -> Step:
    encoded = encode_response(header.correlation_id, response, header.api_version)
    return Step(encoded, failure=failure, user=user)
