"""A bound on the request bytes that all connections of a gateway hold together. Pure.

Whole requests are answered sooner or later, whatever their clients do: while there are too many,
nobody is read from; while there are too many of one address or one connection, that one is not.
Unfinished requests may never become whole: when they are too many, the one that holds the most for
the longest loses its connection, not the one whose bytes come next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

_PATIENCE = 10.0
"""Seconds for which nobody is read from before a connection that makes no progress is closed."""
_CONNECTION_SHARE = 8


@dataclass(slots=True, eq=False)
class _Address:
    """Bytes held by all connections of one client address."""

    whole: int = 0
    partial: int = 0


class Holder:
    """What one connection holds.

    Attributes:
        address: the client's, without its port.
        whole: bytes of whole requests that are not answered yet.
        partial: bytes of the unfinished one.
    """

    __slots__ = ("_close", "_memory", "_resume", "_since", "address", "partial", "whole")

    def __init__(
        self,
        memory: RequestMemory,
        address: str,
        close: Callable[[str], None],
        resume: Callable[[], None],
    ) -> None:
        self._memory = memory
        self.address = address
        self._close = close
        self._resume = resume
        self.whole = 0
        self.partial = 0
        self._since = 0.0  # when the unfinished one began, or the last whole one was answered

    @property
    def full(self) -> bool:
        """Whether the connection may not be read from."""
        return self._memory.bars(self)

    def take(self, size: int, now: float) -> None:
        """A whole request is held."""
        if not self.whole:
            self._since = now
        self._memory.count(self, whole=size)

    def give(self, size: int, now: float) -> None:
        """It is answered. Resumes everybody for whom there is room again."""
        self._since = now
        self._memory.give(self, size)

    def part(self, size: int, now: float, *, is_new: bool) -> None:
        """So many bytes are held of an unfinished request. May close connections, also this one."""
        if is_new and not self.whole:
            self._since = now
        grows = size > self.partial
        self._memory.count(self, partial=size - self.partial)
        if grows:
            self._memory.make_room(self, now)

    def wait(self) -> None:
        """Call `resume` once the connection may be read from."""
        self._memory.waiting[self] = None

    def gone(self) -> None:
        """The connection is lost. What it began is still held until it is answered."""
        self._memory.waiting.pop(self, None)
        self._memory.count(self, partial=-self.partial)

    def weight(self, size: int, now: float) -> float:
        """Bytes times seconds."""
        return size * (1.0 + now - self._since)

    def evict(self, reason: str) -> None:
        """Close the connection. Its unfinished request is not held from now on."""
        self._memory.count(self, partial=-self.partial)
        self._close(reason)

    def resume(self) -> None:
        """The connection may be read from."""
        self._resume()


class RequestMemory:
    """Counts bytes; tells paused connections when there is room again."""

    def __init__(self, limit: int, per_address: int = 0) -> None:
        """`per_address` bytes may be held by the connections of one address; 0: no such bound."""
        self._limit = limit
        self._per_address = per_address or limit
        self._per_connection = limit // _CONNECTION_SHARE
        self._all = _Address()
        self._addresses: dict[str, _Address] = {}
        self._unfinished: dict[Holder, None] = {}
        self._unanswered: dict[Holder, None] = {}
        self._full_since: float | None = None
        self.waiting: dict[Holder, None] = {}
        self.peak = 0
        """The most that was held since this was last set."""
        self.evicted = 0
        """Connections closed to make room."""

    @property
    def held(self) -> int:
        """Bytes held of whole and unfinished requests."""
        return self._all.whole + self._all.partial

    @property
    def full(self) -> bool:
        """Whether nobody may be read from."""
        return self._all.whole > self._limit

    def holder(
        self, address: str, close: Callable[[str], None], resume: Callable[[], None]
    ) -> Holder:
        """A connection's share of the memory.

        `close` is called with a reason where it must make room, `resume` when it waits and may be
        read from again.
        """
        return Holder(self, address, close, resume)

    def relieve(self, now: float) -> None:
        """Called every few seconds: whole requests that are not answered must not stop everybody.

        A client can park one request and send many more behind it.
        """
        if not self.full:
            self._full_since = None
        elif self._full_since is None:
            self._full_since = now
        elif now - self._full_since >= _PATIENCE:
            self._full_since = now
            self._evict(self._unanswered, lambda holder: holder.weight(holder.whole, now))

    # --- for holders ------------------------------------------------------------------------

    def bars(self, holder: Holder) -> bool:
        """Whether this one may not be read from."""
        if self.full or holder.whole > self._per_connection:
            return True
        address = self._addresses.get(holder.address)
        return address is not None and address.whole > self._per_address

    def count(self, holder: Holder, whole: int = 0, partial: int = 0) -> None:
        """More bytes, or fewer, are held."""
        if not whole and not partial:
            return
        holder.whole += whole
        holder.partial += partial
        address = self._addresses.setdefault(holder.address, _Address())
        for sums in (self._all, address):
            sums.whole += whole
            sums.partial += partial
        self.peak = max(self.peak, self.held)
        if not address.whole and not address.partial:
            del self._addresses[holder.address]
        _list(self._unfinished, holder, bool(holder.partial))
        _list(self._unanswered, holder, bool(holder.whole))

    def make_room(self, holder: Holder, now: float) -> None:
        """Close who holds the most of unfinished requests for the longest, where they are too
        many: of the same address, or of all."""
        address = self._addresses[holder.address]
        if address.partial > self._per_address:
            neighbours = [h for h in self._unfinished if h.address == holder.address]
            self._shrink(address, self._per_address, neighbours, now)
        if self._all.partial > self._limit:
            self._shrink(self._all, self._limit, list(self._unfinished), now)

    def give(self, holder: Holder, size: int) -> None:
        """Fewer bytes are held of whole requests: tell those that wait and may be read from."""
        address = self._addresses[holder.address]
        was_full = self.full or address.whole > self._per_address
        self.count(holder, whole=-size)
        if not self.waiting or self.full:
            return
        # Everybody is looked at only where it can matter to others.
        ends = was_full and address.whole <= self._per_address
        for other in list(self.waiting) if ends else [holder]:
            if other in self.waiting and not self.bars(other):
                del self.waiting[other]
                other.resume()

    def _shrink(self, sums: _Address, limit: int, holders: list[Holder], now: float) -> None:
        """Down to a little less than the limit, so that this is not needed at once again."""
        while holders and sums.partial > limit - limit // 8:
            victim = max(holders, key=lambda holder: holder.weight(holder.partial, now))
            holders.remove(victim)
            self.evicted += 1
            victim.evict("too much is held of unfinished requests")

    def _evict(self, holders: Iterable[Holder], weight: Callable[[Holder], float]) -> None:
        victim = max(holders, key=weight, default=None)
        if victim is not None:
            self.evicted += 1
            victim.evict("too much is held of requests that are not answered")


def _list(holders: dict[Holder, None], holder: Holder, listed: bool) -> None:
    if listed:
        holders[holder] = None
    else:
        holders.pop(holder, None)
