"""What a signed token must claim, and what a valid one has claimed (tokens.py)."""

from __future__ import annotations

from dataclasses import dataclass

from quafka_gateway.security.sasl.mechanism import AuthenticationError


class UnknownKeyError(AuthenticationError):
    """The token's key is not in the set; a newer set may have it."""


@dataclass(frozen=True, slots=True)
class TokenClaims:
    """The claims of a valid token. `expires_at`: Unix time; `org`: "" if it names none."""

    name: str
    org: str
    expires_at: float


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What a token must claim.

    Attributes:
        audience: it must name one of these.
        issuer: "" accepts any: the keys are one issuer's.
        skew: seconds by which clocks may differ.
        name_claim: the claim with the client's name.
        org_claim: the claim with the name of the client's org; "": tokens name none.
    """

    audience: tuple[str, ...]
    issuer: str = ""
    skew: float = 30.0
    name_claim: str = "sub"
    org_claim: str = ""
