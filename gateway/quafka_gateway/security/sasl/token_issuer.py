"""The issuer of the tokens that clients present: its keys, and the checks of its tokens."""

from __future__ import annotations

from functools import partial

from quafka_gateway.security.sasl.key_set import KeySetSource
from quafka_gateway.security.sasl.token_rules import TokenClaims, TokenRules, UnknownKeyError
from quafka_gateway.security.sasl.tokens import check
from quafka_gateway.security.sasl.workers import Workers
from quafka_loop import clock

_KEY_SECONDS = 3.0
"""How long a token with an unknown key waits for newer keys."""


class TokenIssuer:
    """Checks tokens in threads. The caller starts and closes `keys`."""

    def __init__(
        self, keys_url: str, refresh_seconds: float, rules: TokenRules, workers: Workers
    ) -> None:
        self.keys = KeySetSource(keys_url, refresh_seconds)
        self._rules = rules
        self._workers = workers

    async def claims(self, token: str) -> TokenClaims:
        """The claims of a valid token. Raises AuthenticationError."""
        try:
            return await self._check(token)
        except UnknownKeyError:
            if not await self.keys.wait_newer(_KEY_SECONDS):
                raise
            return await self._check(token)

    async def _check(self, token: str) -> TokenClaims:
        checked = partial(check, self._rules, token, self.keys.keys, clock.time())
        return await self._workers.run(checked)
