"""How many connections clients may have, in all and from one address. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from quafka_gateway.config import AddressLimit


class ClientConnectionLimits:
    """Counts open connections, in all and by address."""

    def __init__(self, most: int, per_address: int, overrides: Iterable[AddressLimit] = ()) -> None:
        self.most = most
        self._per_address = per_address
        self._overrides = dict(overrides)
        self._open: dict[str, int] = {}
        self._count = 0

    def open(self, host: str) -> str:
        """Count one more connection; return "" or the reason why it must be refused."""
        most = self._overrides.get(host, self._per_address)
        if self._count >= self.most:
            return f"max.connections={self.most} are open"
        if self._open.get(host, 0) >= most:
            return f"max.connections.per.ip={most} are open from {host}"
        self._open[host] = self._open.get(host, 0) + 1
        self._count += 1
        return ""

    def close(self, host: str) -> None:
        """Uncount a connection that `open` has counted."""
        self._count -= 1
        self._open[host] -= 1
        if not self._open[host]:
            del self._open[host]
