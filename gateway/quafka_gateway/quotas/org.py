"""The quotas of one org: of its users, client ids and addresses, and of the org itself. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from quafka_gateway.quotas.client import ClientQuotas, MutationQuota, RateQuota
from quafka_gateway.quotas.kinds import QuotaKind
from quafka_gateway.quotas.precedence import QuotaTable
from quafka_gateway.quotas.rates import RateWindow, TokenBucket
from quafka_gateway.quotas.windows import Windows, WindowSettings
from quafka_proto.schema.quafka import OrgLimit

_LONGEST_REFUSAL = 1.0
"""How long a refused connection is kept at most, as in Kafka."""


class Opening(NamedTuple):
    """What happens to a new connection: it waits, and is then served or closed."""

    seconds: float
    refused: bool


SERVED = Opening(0.0, refused=False)
"""At once."""


class OrgQuotas:
    """Finds the quotas of an org's clients."""

    def __init__(self, settings: WindowSettings) -> None:
        self._settings = settings
        self._windows = Windows(settings)
        self._table = QuotaTable({})
        self._limits: dict[QuotaKind, float] = {}
        self._clients: dict[tuple[str, str], ClientQuotas] = {}
        self.times_requests = False
        """Whether the time of requests is charged to any client."""

    def set(self, table: QuotaTable, limits: Iterable[OrgLimit]) -> None:
        """Replace all quotas. What was used before still counts."""
        values = {limit.name: limit.value for limit in limits}
        self._table = table
        self._limits = {k: values[k.org_limit] for k in QuotaKind if values.get(k.org_limit, 0) > 0}
        self._clients.clear()
        self.times_requests = QuotaKind.REQUESTS in self._limits or table.has(QuotaKind.REQUESTS)

    def __bool__(self) -> bool:
        return bool(self._limits) or bool(self._table)

    @property
    def overflows(self) -> int:
        """See `Windows.overflows`."""
        return self._windows.overflows

    @property
    def windows(self) -> int:
        """The number of windows."""
        return len(self._windows)

    def client(self, user: str, client_id: str, now: float) -> ClientQuotas:
        """The quotas of a client."""
        found = self._clients.get((user, client_id))
        if found is None:
            found = self._find(user, client_id, now)
        return found

    def _find(self, user: str, client_id: str, now: float) -> ClientQuotas:
        overflows, windows = self._windows.overflows, len(self._windows)
        found = ClientQuotas(
            self._rate(QuotaKind.PRODUCE, user, client_id, now),
            self._rate(QuotaKind.FETCH, user, client_id, now),
            self._rate(QuotaKind.REQUESTS, user, client_id, now),
            self._mutations(user, client_id, now),
        )
        if len(self._windows) < windows or len(self._clients) >= self._settings.most:
            self._clients.clear()  # its windows may be forgotten ones
        if self._windows.overflows == overflows:  # otherwise there may be room the next time
            self._clients[user, client_id] = found
        return found

    def open_connection(self, host: str, now: float) -> Opening:
        """Count a new connection from an address."""
        limit = self._table.of_address(host)
        if limit is not None:
            window = self._windows.rate((QuotaKind.CONNECTIONS, host), now)
            window.add(1, now)
            seconds = window.excess(limit, now)
            if seconds:
                window.add(-1, now)
                return Opening(min(seconds, _LONGEST_REFUSAL), refused=True)
        limit = self._limits.get(QuotaKind.CONNECTIONS)
        if limit is None:
            return SERVED
        window = self._windows.rate((QuotaKind.CONNECTIONS, None), now)
        window.add(1, now)
        return Opening(window.excess(limit, now), refused=False)

    def _rate(self, kind: QuotaKind, user: str, client_id: str, now: float) -> RateQuota | None:
        parts: list[tuple[RateWindow, float]] = []
        own = self._table.of_client(kind, user, client_id)
        if own is not None:
            parts.append((self._windows.rate((kind, own.scope), now), own.value))
        if kind in self._limits:
            parts.append((self._windows.rate((kind, None), now), self._limits[kind]))
        whole = (self._settings.samples - 1) * self._settings.seconds
        return RateQuota(parts, whole) if parts else None

    def _mutations(self, user: str, client_id: str, now: float) -> MutationQuota | None:
        parts: list[tuple[TokenBucket, float]] = []
        kind = QuotaKind.MUTATIONS
        own = self._table.of_client(kind, user, client_id)
        if own is not None:
            bucket = self._windows.bucket((kind, own.scope), own.value, now)
            parts.append((bucket, own.value))
        if kind in self._limits:
            rate = self._limits[kind]
            parts.append((self._windows.bucket((kind, None), rate, now), rate))
        return MutationQuota(parts) if parts else None
