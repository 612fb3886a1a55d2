"""Bearer tokens for OAUTHBEARER: from a file, from an identity provider, or unsigned for tests."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.error import HTTPError

from quafka_client.errors import ClientError
from quafka_client.sasl import Token, unverified_claims
from quafka_loop import clock

_MOST_BYTES = 1 << 20
_SECONDS = 10.0
_DEFAULT_LIFETIME = 3600.0


def fixed(value: str) -> Callable[[], Token]:
    """Always the same token."""
    return lambda: Token(value, _expiry(value))


def from_file(path: Path) -> Callable[[], Token]:
    """The token in a file, read again for each login, because another program renews it."""

    def read() -> Token:
        try:
            value = path.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as e:
            raise ClientError(f"the token in {path}: {getattr(e, 'strerror', None) or e}") from e
        return Token(value, _expiry(value))

    return read


def unsigned(subject: str) -> Callable[[], Token]:
    """A token without a signature, as Kafka's own login module makes; for tests."""

    def make() -> Token:
        now = int(clock.time())
        claims = {"sub": subject, "iat": now, "exp": now + _DEFAULT_LIFETIME}
        parts = (json.dumps(part).encode() for part in ({"alg": "none"}, claims))
        words = (base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)
        return Token(".".join(words) + ".", now + _DEFAULT_LIFETIME)

    return make


@dataclass(frozen=True, slots=True)
class Provider:
    """An identity provider: the client credentials grant of RFC 6749, section 4.4."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str
    tls: ssl.SSLContext | None

    def __call__(self) -> Token:
        """Get a token. Raises ClientError."""
        form = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        pair = ":".join(map(urllib.parse.quote_plus, (self.client_id, self.client_secret)))
        request = urllib.request.Request(  # noqa: S310 - http and https only, see `_security`
            self.url,
            urllib.parse.urlencode(form).encode(),
            {
                "Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}",
                "Accept": "application/json",
            },
        )
        try:
            with urllib.request.urlopen(  # noqa: S310
                request, timeout=_SECONDS, context=self.tls
            ) as reply:
                body = cast("dict[str, Any]", json.loads(reply.read(_MOST_BYTES)))
            value = str(body["access_token"])
        except HTTPError as e:
            with e:  # the error is also the response
                raise ClientError(f"no token from {self.url}: {e.code} {e.reason}") from e
        except (OSError, ValueError, KeyError, TypeError) as e:
            raise ClientError(f"no token from {self.url}: {_reason(e)}") from e
        return Token(value, _expiry(value))


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return str(getattr(error, "reason", None) or error)
    return "the answer has no access_token"


def _expiry(token: str) -> float:
    """When a JWT expires; an hour from now if the token has no expiry time."""
    try:
        return float(unverified_claims(token)["exp"])
    except (KeyError, TypeError, ValueError):
        return clock.time() + _DEFAULT_LIFETIME
