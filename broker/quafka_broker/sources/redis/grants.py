"""Decides by the setting `sources.redis.allowed` which sources the topics of an org may have."""

from __future__ import annotations

from collections.abc import Iterable

from quafka_broker.config.redis_grants import SETTING, Grant
from quafka_broker.sources.redis.url import RedisSource
from quafka_broker.sources.source import BadSourceError


class Grants:
    """All entries of the setting."""

    def __init__(self, grants: Iterable[Grant]) -> None:
        self._grants = tuple(grants)
        self._bound = {grant.auth for grant in self._grants}
        """The secrets that entries name."""

    def check(self, source: RedisSource, org: int) -> None:
        """Raise BadSourceError if topics of an org may not have this source."""
        refusal = self.refusal(source, org)
        if refusal:
            raise BadSourceError(refusal)

    def refusal(self, source: RedisSource, org: int) -> str:
        """Return why topics of an org may not have this source; "": they may.

        The text has entries of this org alone.
        """
        auth = source.server.auth
        for address in source.server.addresses:
            if any(self._allows(grant, source, org, address) for grant in self._grants):
                continue
            its = "; ".join(str(grant) for grant in self._grants if grant.org == org) or "none"
            named = f"auth={auth}" if auth else "no auth"
            return (
                f"topics of org {org} may not name {address} with this database and stream, and "
                f"{named}: the broker's setting {SETTING} has no such entry as "
                f"{Grant(org, address, auth=auth)}; its entries for this org: {its}"
            )
        return ""

    def _allows(self, grant: Grant, source: RedisSource, org: int, address: str) -> bool:
        auth = source.server.auth
        allowed = not auth or auth not in self._bound if grant.auth is None else grant.auth == auth
        return (
            allowed and grant.org == org and grant.covers(address, source.server.db, source.stream)
        )
