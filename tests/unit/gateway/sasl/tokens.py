"""An issuer of tokens for tests."""

from __future__ import annotations

import json
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey, JWKRegistry, KeySet, OctKey, RSAKey

from quafka_loop import clock

AnyKey = RSAKey | ECKey | OctKey


class Issuer:
    """Signs tokens with one key."""

    def __init__(self, kid: str = "one", kind: str = "RSA") -> None:
        made: Any
        if kind == "RSA":
            made = RSAKey.generate_key(2048, {"kid": kid})
        else:
            made = ECKey.generate_key("P-256", {"kid": kid})
        self.key: AnyKey = made
        self.kid = kid
        self.algorithm = "RS256" if kind == "RSA" else "ES256"

    @property
    def public(self) -> dict[str, Any]:
        return dict(self.key.as_dict(private=False))

    @property
    def keys(self) -> KeySet:
        return KeySet([JWKRegistry.import_key(self.public)])

    @property
    def jwks(self) -> bytes:
        return json.dumps({"keys": [self.public]}).encode()

    def check(self, token: str) -> None:
        """Check a token's signature. Raises JoseError."""
        jwt.decode(token, self.key, algorithms=[self.algorithm])

    def token(self, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """A token of alice for "kafka" that is valid for a minute, but for these claims."""
        all_claims = {
            "sub": "alice",
            "aud": "kafka",
            "iss": "us",
            "exp": clock.time() + 60,
            **claims,
        }
        told = {key: value for key, value in all_claims.items() if value is not None}
        full = {"alg": self.algorithm, "kid": self.kid, **(header or {})}
        return jwt.encode(full, told, self.key, algorithms=[full["alg"]])
