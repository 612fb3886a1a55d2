"""Who uses the console, and what it knows for them."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from quafka_client.cluster import ClientCluster
from quafka_client.errors import ClientError, LoginError
from quafka_client.registry.client import SchemaRegistry
from quafka_client.sasl import OAUTHBEARER, Credentials, Token, unverified_claims
from quafka_client.security import ClientSecurity
from quafka_console.data.operators import is_operator
from quafka_console.data.rates import Rates
from quafka_console.data.status_reader import OperationsPort
from quafka_console.data.traces.store import TraceStore
from quafka_loop import clock

audit = logging.getLogger("quafka.console.audit")

Query = Mapping[str, str]
"""The parameters of a page's address."""
CONSOLE_CLIENT = "quafka-console"
"""The client id of the console's requests."""
_TIMEOUT = 10.0
MOST_SIGNED_IN = 1_000
_FAILURES, _FAILURES_OF_ALL, _FAILURE_SECONDS = 10, 100, 60.0
"""Of one user, and of all."""


class TooManyFailuresError(ClientError):
    """Somebody guesses passwords; the sentence says how long the console refuses sign-ins."""


class ForOperatorsError(ClientError):
    """What concerns all orgs is not for this user."""


@dataclass(slots=True)
class Person:
    """A Kafka user, connected. `user`: "" if the cluster asks for no login.

    Attributes:
        session: the id of their browser's session; "": everybody's.
        dark: whether they want dark pages; None: as their system.
    """

    user: str
    cluster: ClientCluster
    session: str = ""
    dark: bool | None = None
    ends: asyncio.TimerHandle | None = None
    """The end of the bearer token with which they have signed in."""

    async def leave(self) -> None:
        """Disconnect."""
        if self.ends is not None:
            self.ends.cancel()
        with suppress(OSError):
            await self.cluster.__aexit__()


@dataclass(slots=True)
class People:
    """Those who have signed in, by the id of their browser's session.

    Attributes:
        security: with credentials if everybody shares them.
        token_claim: the claim that names the user, if people sign in with bearer tokens; "": they
            have passwords.
        shared: everybody, once connected, if nobody has to sign in.
    """

    bootstrap: Sequence[tuple[str, int]]
    security: ClientSecurity
    token_claim: str = ""
    shared: Person | None = None
    signed_in: dict[str, Person] = field(default_factory=dict[str, Person])
    _failures: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    _unclaimed: dict[str, str] = field(default_factory=dict[str, str])
    """By the new session: the browser's session before it signed in."""
    _connecting: asyncio.Lock = field(default_factory=asyncio.Lock)
    _ended: dict[str, None] = field(default_factory=dict[str, None])
    """Browsers whose token has expired, the latest last."""
    _ending: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    @property
    def must_sign_in(self) -> bool:
        """Whether the cluster asks for a login, and the console has none of its own."""
        return self.security.protocol.logs_in and self.security.credentials is None

    async def find(self, browser: str) -> Person | None:
        """Who uses this browser; None: nobody has signed in.

        Raises ClientError: the cluster cannot be reached.
        """
        if self.must_sign_in:
            return self.signed_in.get(browser)
        async with self._connecting:
            if self.shared is None:
                credentials = self.security.credentials
                user = "" if credentials is None else credentials.username
                self.shared = Person(user, await self._connected(self.security))
        return self.shared

    async def sign_in(self, browser: str, credentials: Credentials) -> Person:
        """Sign in as a Kafka user. The browser then has to `claim` the person's session.

        Raises:
            TooManyFailuresError: there were many failures within a minute.
            ClientError: the cluster refuses.
        """
        now, user = clock.monotonic(), credentials.username
        self._failures = [each for each in self._failures if now - each[0] < _FAILURE_SECONDS]
        its = sum(name == user for _, name in self._failures)
        if its >= _FAILURES or len(self._failures) >= _FAILURES_OF_ALL:
            raise TooManyFailuresError(
                "too many sign-ins have failed within a minute; try again in a minute"
            )
        # counts as a failure until the cluster accepts it, or many could be tried at once
        self._failures.append((now, user))
        try:
            cluster = await self._connected(replace(self.security, credentials=credentials))
        except ClientError:
            audit.info("%r: sign-in refused", user)
            raise
        with suppress(ValueError):  # a slow one may be forgotten already
            self._failures.remove((now, user))
        audit.info("%r: signed in", user)
        earlier = [each for each, its in self._unclaimed.items() if its == browser]
        for each in (browser, *earlier):
            await self.sign_out(each)
        while len(self.signed_in) >= MOST_SIGNED_IN:
            await self.sign_out(next(iter(self.signed_in)))
        self._ended.pop(browser, None)
        session = secrets.token_urlsafe(32)
        self._unclaimed[session] = browser
        person = self.signed_in[session] = Person(user, cluster, session)
        return person

    def claim(self, session: str, browser: str) -> bool:
        """Whether this browser has just signed in, and has that session from now on. Once.

        A session that somebody else knew before, or gave to the browser, never becomes signed in.
        """
        return self._unclaimed.pop(session, None) == browser and session in self.signed_in

    async def sign_in_with_token(self, browser: str, value: str) -> Person:
        """Sign in with a bearer token, until it expires.

        Raises:
            TooManyFailuresError, ClientError: as `sign_in`.
        """
        try:
            claims = unverified_claims(value)
            user, expires_at = str(claims[self.token_claim]), float(claims["exp"])
        except (KeyError, TypeError, ValueError) as e:
            raise LoginError(
                f"this is not a JWT with the claims {self.token_claim} and exp; get a token from "
                "your identity provider"
            ) from e
        if expires_at <= clock.time():
            raise LoginError("the token has expired; get a new one from your identity provider")
        token = Token(value, expires_at)
        person = await self.sign_in(browser, Credentials(OAUTHBEARER, user, token=lambda: token))
        loop = asyncio.get_running_loop()
        seconds = max(0.0, expires_at - clock.time())
        person.ends = loop.call_later(seconds, self._expire, person)
        return person

    def _expire(self, person: Person) -> None:
        if self.signed_in.get(person.session) is not person:
            return
        audit.info("%r: the token has expired", person.user)
        self._ended[person.session] = None
        if len(self._ended) > MOST_SIGNED_IN:
            del self._ended[next(iter(self._ended))]
        task = asyncio.get_running_loop().create_task(self.sign_out(person.session))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def has_expired(self, browser: str) -> bool:
        """Whether the last token of this browser has expired since it signed in."""
        return browser in self._ended

    async def _connected(self, security: ClientSecurity) -> ClientCluster:
        return await ClientCluster(
            self.bootstrap, _TIMEOUT, security, reopens=True, client_id=CONSOLE_CLIENT
        ).__aenter__()

    async def sign_out(self, browser: str) -> None:
        """Forget who uses this browser."""
        self._unclaimed.pop(browser, None)
        person = self.signed_in.pop(browser, None)
        if person is not None:
            audit.info("%r: signed out", person.user)
            await person.leave()

    async def close(self) -> None:
        """Disconnect everybody."""
        for person in (*self.signed_in.values(), *([self.shared] if self.shared else [])):
            await person.leave()


@dataclass(frozen=True, slots=True)
class ConsoleSession:
    """One page of one person.

    Attributes:
        cluster: connected as that person; a lost connection is opened again.
        operations: the operations ports of gateways and brokers.
        rates: what the gateways did in the last hour.
        traces: what gateways and brokers have exported to the console.
        here: the URL of the console.
        may_write: whether changes are offered at all; the cluster decides on each of them.
        is_shared: nobody signs in: whoever reaches the console sees what its own user may see.
        trace_url: the URL of a trace in a tracing UI, with {trace_id} in it; "": none.
        registry: the schema registry that decodes values; None: none is configured.
    """

    cluster: ClientCluster
    user: str
    operations: Sequence[OperationsPort]
    rates: Rates
    traces: TraceStore
    here: str
    may_write: bool
    is_shared: bool
    trace_url: str
    registry: SchemaRegistry | None

    async def check_operator(self) -> None:
        """Return if what concerns all orgs may be shown: status pages, rates, traces.

        Raises:
            ForOperatorsError: it may not.
            ClientError: the gateway does not answer.
        """
        if not self.is_shared and not await is_operator(self.cluster):
            raise ForOperatorsError(
                "only operators see this, because it concerns all orgs; sign in as a super user "
                "of the gateway's own org"
            )
