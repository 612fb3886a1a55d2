"""Checks signed tokens (RFC 7519): signature, issuer, audience, time, and whose they are.

Only algorithms with a public key are accepted: a key that everyone may read can then never serve as
the secret of a signature.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, cast

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import Key, KeySet
from joserfc.jws import JWSRegistry

from quafka_gateway.security.sasl.mechanism import AuthenticationError
from quafka_gateway.security.sasl.token_rules import TokenClaims, TokenRules, UnknownKeyError

ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"]
_MOST_TRIES = 8
"""Keys that are tried for a token that names none; each costs up to 0.1 ms."""


class _Registry(JWSRegistry):
    """Ignores parameters of the header that it does not know, but those of `crit` (RFC 7515, 4).

    Some issuers add their own, or a chain of certificates.
    """

    max_header_length = 8 << 10


_REGISTRY = _Registry(algorithms=ALGORITHMS, strict_check_header=False)


def check(rules: TokenRules, token: str, keys: KeySet, now: float) -> TokenClaims:
    """Check a token. Takes a part of a millisecond: call it in a thread.

    Raises:
        UnknownKeyError: the set has no such key.
        AuthenticationError: the token is not valid.
    """
    try:
        claims = _verified(token, keys)
    except (JoseError, ValueError, TypeError, KeyError, RecursionError) as e:
        raise AuthenticationError(f"the token is not valid: {type(e).__name__}") from e
    expires_at = _check_time(claims, rules.skew, now)
    if rules.issuer and claims.get("iss") != rules.issuer:
        raise AuthenticationError("the token is of another issuer")
    audience = claims.get("aud")
    told: list[Any] = cast("list[Any]", audience) if isinstance(audience, list) else [audience]
    if not any(isinstance(each, str) and each in rules.audience for each in told):
        raise AuthenticationError("the token is for another audience")
    org = _text(claims, rules.org_claim) if rules.org_claim else ""
    return TokenClaims(_text(claims, rules.name_claim), org, expires_at)


def _check_time(claims: dict[str, Any], skew: float, now: float) -> float:
    expires_at = _time(claims, "exp")
    if expires_at is None:
        raise AuthenticationError("the token does not expire")
    if expires_at + skew <= now:
        raise AuthenticationError("the token has expired")
    for name in ("nbf", "iat"):
        begins = _time(claims, name)
        if begins is not None and begins - skew > now:
            raise AuthenticationError("the token is not valid yet")
    return expires_at


def _verified(token: str, keys: KeySet) -> dict[str, Any]:
    """The claims of a token that one of the keys has signed. Raises AuthenticationError, or one of
    the library's errors."""
    signed = jws.extract_compact(token.encode(), registry=_REGISTRY)
    header = signed.headers()
    _REGISTRY.check_header(header)
    kid = header.get("kid")
    for key in islice(_candidates(keys, kid, header["alg"]), _MOST_TRIES):
        if jws.validate_compact(signed, key, registry=_REGISTRY):
            claims = json.loads(signed.payload or b"")
            if not isinstance(claims, dict):
                raise AuthenticationError("the token's claims are not an object")
            return cast("dict[str, Any]", claims)
    if any(each.kid == kid for each in keys):
        raise AuthenticationError("the token is not valid: its signature is wrong")
    raise UnknownKeyError("the token is signed with an unknown key")


def _candidates(keys: KeySet, kid: str | None, algorithm: str) -> Iterator[Key]:
    """The keys that may have signed a token: that of its `kid`; without one, all of its algorithm.

    A key without a `kid` may have any; the library names it by its thumbprint.
    """
    named = [each for each in keys if each.kid == kid]
    for key in named or [each for each in keys if kid is None or each.kid == each.thumbprint()]:
        with suppress(JoseError):
            key.check_use("sig")
            key.check_alg(algorithm)
            _REGISTRY.get_alg(algorithm).check_key(key)
            yield key


def _time(claims: dict[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise AuthenticationError(f"the token's {name} is not a time")
    return float(value)


def _text(claims: dict[str, Any], name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not value or len(value) > 255 or "\0" in value:
        raise AuthenticationError(f"the token's {name} is not a name")
    return value
