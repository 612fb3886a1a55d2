"""Which quota a client has, by Kafka's order of precedence. Pure.

| | user | client id | who shares it |
| --- | --- | --- | --- |
| 1 | the user | the client id | the connections of this user with this client id |
| 2 | the user | the default | the same |
| 3 | the user | - | all connections of the user |
| 4 | the default | the client id | the connections of each user with this client id |
| 5 | the default | the default | the same |
| 6 | the default | - | all connections of each user |
| 7 | - | the client id | all connections with this client id |
| 8 | - | the default | all connections with one client id |
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address
from typing import NamedTuple

from quafka_gateway.quotas.kinds import CLIENT_ID, CLIENT_KINDS, IP, USER, QuotaKind
from quafka_gateway.security.directory import QuotaKey
from quafka_mesh_ops.ops.security import QuotaRecord

Scope = tuple[str | None, str | None]
"""Who shares a quota: a user, a client id or both; None: whoever it is."""


class ClientLimit(NamedTuple):
    """A quota's value, and who shares it."""

    value: float
    scope: Scope


class QuotaTable:
    """The quotas of one org."""

    def __init__(self, records: Mapping[QuotaKey, QuotaRecord]) -> None:
        self._limits: dict[QuotaKind, dict[QuotaKey, float]] = {}
        for key, record in records.items():
            for each in record.values:
                kind = _KINDS.get(each.key)
                if kind is not None and each.value > 0:
                    self._limits.setdefault(kind, {})[_normal(key)] = each.value

    def __bool__(self) -> bool:
        return bool(self._limits)

    def has(self, kind: QuotaKind) -> bool:
        """Whether there is any quota of this kind."""
        return kind in self._limits

    def of_client(self, kind: QuotaKind, user: str, client_id: str) -> ClientLimit | None:
        """The quota that holds for a client; None: it has none."""
        limits = self._limits.get(kind)
        if limits is None:
            return None
        for user_part in ((USER, user), (USER, None), None):
            for client_part in ((CLIENT_ID, client_id), (CLIENT_ID, None), None):
                key = tuple(part for part in (client_part, user_part) if part is not None)
                value = limits.get(key)
                if value is not None:
                    scope = (user if user_part else None, client_id if client_part else None)
                    return ClientLimit(value, scope)
        return None

    def of_address(self, host: str) -> float | None:
        """Connections a second that an address may open; None: any."""
        limits = self._limits.get(QuotaKind.CONNECTIONS)
        if limits is None:
            return None
        value = limits.get(((IP, host),))
        return limits.get(((IP, None),)) if value is None else value


def _normal(key: QuotaKey) -> QuotaKey:
    """The key with addresses as sockets name them."""
    if len(key) != 1 or key[0][0] != IP or key[0][1] is None:
        return key
    with suppress(ValueError):
        return ((IP, str(ip_address(key[0][1]))),)
    return key


_KINDS = {kind.value: kind for kind in (*CLIENT_KINDS, QuotaKind.CONNECTIONS)}
