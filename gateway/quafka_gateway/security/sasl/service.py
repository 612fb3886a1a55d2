"""What the connections of a gateway share to authenticate clients by SASL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from quafka_gateway.config import EdgeSettings
from quafka_gateway.sasl_settings import OAUTHBEARER, PLAIN
from quafka_gateway.security.directory import Directory
from quafka_gateway.security.sasl.accounts import Accounts
from quafka_gateway.security.sasl.limits import Failures, Unauthenticated
from quafka_gateway.security.sasl.logins import Logins
from quafka_gateway.security.sasl.mechanism import (
    Account,
    AuthenticationError,
    BusyError,
    MechanismServer,
)
from quafka_gateway.security.sasl.oauthbearer import OAuthBearerServer
from quafka_gateway.security.sasl.plain import PlainServer
from quafka_gateway.security.sasl.scram import ScramServer
from quafka_gateway.security.sasl.token_rules import TokenRules
from quafka_gateway.security.sasl.workers import Workers
from quafka_loop import clock
from quafka_telemetry.startup import StartupError

if TYPE_CHECKING:
    from quafka_gateway.security.sasl.token_issuer import TokenIssuer


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """The settings about SASL. Times are in seconds; 0 of `max_reauth`: for ever."""

    mechanisms: tuple[str, ...]
    most: int
    most_per_address: int
    failures_per_minute: int
    timeout: float
    delay: float
    max_reauth: float
    receive_bytes: int
    jwks_url: str = ""
    jwks_refresh: float = 3_600.0
    tokens: TokenRules = field(default_factory=partial(TokenRules, ()))


class SaslService:
    """Makes the servers of the mechanisms: `start`, and at last `close`."""

    def __init__(
        self, settings: SaslSettings, directory: Directory, own_org: int, secret: bytes
    ) -> None:
        """`secret`: of the credentials that unknown names seem to have, while the cluster's is not
        known.

        Raises:
            StartupError: the settings contradict one another.
        """
        _check(settings)
        self.settings = settings
        self.accounts = Accounts(directory, own_org, secret)
        self.logins = Logins(self.accounts, directory)
        self.unauthenticated = Unauthenticated(settings.most, settings.most_per_address)
        self.failures = Failures(settings.failures_per_minute)
        self.counts: dict[tuple[str, str], int] = {
            (mechanism, outcome): 0
            for mechanism in settings.mechanisms
            for outcome in ("success", "failure")
        }
        """Authentications by mechanism and outcome."""
        self.expired = 0
        """Connections closed because their session ended."""
        self._workers = Workers()
        self._issuer: TokenIssuer | None = None
        if OAUTHBEARER in settings.mechanisms:
            # Imported here: most gateways check no tokens, and the library takes 2 MB.
            from quafka_gateway.security.sasl.token_issuer import TokenIssuer

            self._issuer = TokenIssuer(
                settings.jwks_url, settings.jwks_refresh, settings.tokens, self._workers
            )

    async def start(self) -> None:
        """Read the keys of tokens. Raises StartupError."""
        if self._issuer is not None:
            await self._issuer.keys.start()

    async def reload(self) -> None:
        """Read the keys of tokens again."""
        if self._issuer is not None:
            await self._issuer.keys.refresh()

    async def close(self) -> None:
        """Check no more credentials."""
        self._workers.close()
        self.logins.close()
        if self._issuer is not None:
            await self._issuer.keys.close()

    def count(self, mechanism: str, *, success: bool) -> None:
        """Count an authentication; of no mechanism, if the client has chosen none."""
        key = (mechanism, "success" if success else "failure")
        self.counts[key] = self.counts.get(key, 0) + 1

    def mechanisms(self, org: str) -> Mapping[str, Callable[[], MechanismServer]]:
        """The mechanisms of a listener, by name. `org`: the listener's, if it has one."""
        return {each: partial(self._server, each, org) for each in self.settings.mechanisms}

    def lifetime(self, account: Account) -> float | None:
        """Seconds until a client must authenticate again; None: never."""
        most = self.settings.max_reauth or None
        if account.expires_at is None:
            return most
        left = max(0.0, account.expires_at - clock.time())
        return left if most is None else min(left, most)

    def _server(self, mechanism: str, org: str) -> MechanismServer:
        if not self.accounts.ready:
            raise BusyError("this gateway has not read the users yet")
        if mechanism == PLAIN:
            return PlainServer(self.accounts, self._workers.run, org)
        if mechanism == OAUTHBEARER:
            return OAuthBearerServer(partial(self._account_of, org))
        return ScramServer(mechanism, self.accounts, org)

    async def _account_of(self, org: str, token: str) -> Account:
        """The account of a token. Raises AuthenticationError."""
        assert self._issuer is not None, "the mechanism is on"
        claims = await self._issuer.claims(token)
        org_id, name, org_name = self.accounts.place_of_token(claims.name, claims.org, org)
        if not self.accounts.active(org_id):
            raise AuthenticationError(
                "the token's org is unknown, not active or not the listener's"
            )
        return Account(org_id, name, expires_at=claims.expires_at, org_name=org_name)


def settings_of(config: EdgeSettings) -> SaslSettings:
    """The settings about SASL."""
    return SaslSettings(
        mechanisms=config.sasl_enabled_mechanisms,
        most=config.max_unauthenticated_connections,
        most_per_address=config.max_unauthenticated_connections_per_ip,
        failures_per_minute=config.max_failed_authentications_per_ip,
        timeout=config.connection_authentication_timeout_ms / 1000,
        delay=config.connection_failed_authentication_delay_ms / 1000,
        max_reauth=config.connections_max_reauth_ms / 1000,
        receive_bytes=config.sasl_server_max_receive_size,
        jwks_url=config.sasl_oauthbearer_jwks_endpoint_url,
        jwks_refresh=config.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000,
        tokens=TokenRules(
            config.sasl_oauthbearer_expected_audience,
            config.sasl_oauthbearer_expected_issuer,
            config.sasl_oauthbearer_clock_skew_seconds,
            config.sasl_oauthbearer_sub_claim_name,
            config.sasl_oauthbearer_org_claim_name,
        ),
    )


def _check(settings: SaslSettings) -> None:
    if OAUTHBEARER not in settings.mechanisms:
        return
    if not settings.jwks_url:
        raise StartupError("OAUTHBEARER needs sasl.oauthbearer.jwks.endpoint.url")
    if not settings.tokens.audience:
        # Otherwise a token that the issuer made for any other service would open this one.
        raise StartupError("OAUTHBEARER needs sasl.oauthbearer.expected.audience")
