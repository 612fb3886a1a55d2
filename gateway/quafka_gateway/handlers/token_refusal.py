"""Why a request about delegation tokens (KIP-48) is refused. Pure.

The gateway issues no tokens. It answers as a Kafka without `delegation.token.secret.key`: clients
that have not authenticated may not ask at all.
"""

from __future__ import annotations

from quafka_gateway.security.session import ClientSession
from quafka_proto.errors import ErrorCode

NO_TIME = -1
"""Instead of a time, in a response without a token."""


def token_refusal(session: ClientSession) -> ErrorCode:
    """The error of every request about tokens."""
    if not session.mechanism:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
