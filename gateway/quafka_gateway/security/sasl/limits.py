"""What clients may cost before they have authenticated: their number, and their failures. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address

_IPV6_PREFIX = 64
_MOST_ADDRESSES = 10_000
_MINUTE = 60.0


def network_of(host: str) -> str:
    """What counts as one address: an IPv6 host has a whole /64 to itself."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Address(int(address) >> _IPV6_PREFIX << _IPV6_PREFIX))


class Unauthenticated:
    """The connections that have not authenticated yet, few in all and from one address.

    When there is one too many, the oldest connection of the address with the most is closed: an
    honest client needs some round trips, and a hostile one loses its own connections.
    """

    def __init__(self, most: int, per_address: int) -> None:
        self._most = most
        self._per_address = per_address
        self._open: dict[str, OrderedDict[int, Callable[[str], None]]] = {}
        self._count = 0
        self.evicted = 0
        """Connections closed to make room."""

    def __len__(self) -> int:
        return self._count

    def open(self, host: str, serial: int, close: Callable[[str], None]) -> None:
        """Count a connection. `close` is called with a reason if it must give way."""
        address = network_of(host)
        its = self._open.get(address, ())
        if len(its) >= self._per_address:
            self._evict(address, "max.unauthenticated.connections.per.ip")
        elif self._count >= self._most:
            fullest = max(self._open, key=lambda each: len(self._open[each]))
            self._evict(fullest, "max.unauthenticated.connections")
        self._open.setdefault(address, OrderedDict())[serial] = close
        self._count += 1

    def remove(self, host: str, serial: int) -> None:
        """The connection has authenticated, or is gone. May be called again."""
        address = network_of(host)
        its = self._open.get(address)
        if its is None or its.pop(serial, None) is None:
            return
        self._count -= 1
        if not its:
            del self._open[address]

    def _evict(self, address: str, setting: str) -> None:
        its = self._open[address]
        serial, close = next(iter(its.items()))
        self.remove(address, serial)
        self.evicted += 1
        close(f"{setting}: closed to make room for others")


class Failures:
    """Failed authentications by address, a bounded number a minute; a bucket of tokens each."""

    def __init__(self, per_minute: int) -> None:
        """0: no limit."""
        self._per_minute = per_minute
        self._spent: OrderedDict[str, tuple[float, float]] = OrderedDict()  # failures, since when

    def count(self, host: str, now: float) -> None:
        """Count a failure of an address."""
        if not self._per_minute:
            return
        address = network_of(host)
        self._spent[address] = (self._left(address, now) + 1, now)
        self._spent.move_to_end(address)
        if len(self._spent) > _MOST_ADDRESSES:
            self._spent.popitem(last=False)

    def bars(self, host: str, now: float) -> bool:
        """Whether the address has failed so often that it must wait."""
        if not self._per_minute:
            return False
        return self._left(network_of(host), now) > self._per_minute - 1

    def _left(self, address: str, now: float) -> float:
        spent, since = self._spent.get(address, (0.0, now))
        return max(0.0, spent - (now - since) * self._per_minute / _MINUTE)
