"""What a SASL mechanism is to the authenticator: tokens in, tokens out, an account at the end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from quafka_mesh_ops.ops.security import ScramCredential

T = TypeVar("T")

Offload = Callable[[Callable[[], T]], Awaitable[T]]
"""Runs a function of some milliseconds outside the event loop."""


class AuthenticationError(Exception):
    """The client has not proven who it is. The message is for the log; it has no secret."""

    def __init__(self, reason: str, told: str = "", *, user: str = "") -> None:
        """`told`: what the client reads, if it may learn more than that it was refused.

        `user`: the name that it gave, if it has given one.
        """
        super().__init__(reason)
        self.told = told
        self.user = user


WRONG_PASSWORD = "unknown user or wrong password"  # noqa: S105 - a sentence


class BusyError(Exception):
    """The gateway cannot check credentials now: the client must try again."""


class Account(NamedTuple):
    """Who a client has proven to be.

    Attributes:
        credential: the record of the user's password; None if something else was the proof.
        expires_at: Unix time at which the proof ends; None: never.
        org_name: see OrgUser.
    """

    org_id: int
    name: str
    credential: ScramCredential | None = None
    expires_at: float | None = None
    org_name: str = ""


@dataclass(frozen=True, slots=True)
class SaslReply:
    """The server's token; with an account the exchange is over."""

    token: bytes
    account: Account | None = None


class MechanismServer(Protocol):
    """One exchange of one client."""

    async def evaluate(self, token: bytes) -> SaslReply:
        """Take the client's next token.

        Raises:
            AuthenticationError: the exchange has failed.
            BusyError: it could not be continued.
        """
        ...
