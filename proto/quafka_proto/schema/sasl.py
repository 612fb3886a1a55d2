"""SASL: SaslHandshake (key 17), SaslAuthenticate (36).

After SaslHandshake 0 the tokens are sent without a Kafka header; from version 1 they are
SaslAuthenticate requests (KIP-152).
"""

from __future__ import annotations

from quafka_proto.message import (
    Request,
    Response,
    array,
    binary,
    int16,
    int64,
    string,
)


class SaslHandshakeRequest(Request, key=17, versions="0-1"):
    mechanism: str = string()


class SaslHandshakeResponse(Response, key=17, versions="0-1"):
    error_code: int = int16()
    mechanisms: list[str] = array(string())


class SaslAuthenticateRequest(Request, key=36, versions="0-2", flexible="2+"):
    auth_bytes: bytes = binary(secret=True)


class SaslAuthenticateResponse(Response, key=36, versions="0-2", flexible="2+"):
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable="0+")
    auth_bytes: bytes = binary(secret=True)
    session_lifetime_ms: int = int64("1+")
