"""Bounds on the request and response bytes that all connections of a gateway hold. Pure.

Requests. A whole request is answered sooner or later, whatever its client does. While the bytes of
whole requests are above the limit, the connections of each org with more than an equal share of it
are not read from: an org within its share is not barred by others, who together hold up to the
limit again. While those of one address or one connection are above their bound, that address or
connection is not read from. An unfinished request may never become whole. When the bytes of
unfinished requests are above the limit, the connection that has held the most bytes for the longest
time is closed, of an org with more than its share, and not the connection whose bytes arrive next.

Responses. No fetch waits for room: as room becomes scarce, responses become smaller, down to a
floor that keeps every consumer served. A client that reads slowly holds one response and is not
read from. Above the limit, clients that have read nothing for some seconds lose their connections,
and no long response is made. None of this concerns an org within an equal share of the limit: its
fetches return as much as its share has room for, and its clients are neither kept waiting nor
disconnected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from quafka_gateway.fair_budget import FairBudget
from quafka_loop.garbage import ignore

T = TypeVar("T")

NO_ORG = 0
"""The party of clients that have not logged in yet."""
_PATIENCE = 10.0
"""Seconds for which reading may be stopped for all before a stuck connection is closed."""
_CONNECTION_SHARE = 8

RESPONSE_FLOOR = 64 << 10
"""Response bytes that a fetch may always request."""
_RESPONSE_SHARE = 8


@dataclass(slots=True, eq=False)
class _Sums:
    """Request bytes held by all connections, or by those of one client address or org."""

    connections: int = 0
    whole: int = 0
    partial: int = 0


class HeldRequests:
    """The request bytes that one connection holds.

    Attributes:
        sums: those of the client's address.
        org: those of the client's org; before a login those of all clients without one.
        whole: bytes of whole requests that are not answered yet.
        partial: bytes of the unfinished request.
    """

    __slots__ = (
        "_close",
        "_memory",
        "_resume",
        "_since",
        "address",
        "org",
        "partial",
        "party",
        "sums",
        "whole",
    )  # fmt: skip

    def __init__(
        self,
        memory: RequestMemory,
        address: str,
        sums: _Sums,
        org: _Sums,
        close: Callable[[str], None],
        resume: Callable[[], None],
    ) -> None:
        self._memory = memory
        self.address = address
        self.sums = sums
        self.org = org
        self.party = NO_ORG
        self._close = close
        self._resume = resume
        self.whole = 0
        self.partial = 0
        self._since = 0.0  # when the unfinished one began, or the last whole one was answered

    @property
    def full(self) -> bool:
        """Whether the connection may not be read from."""
        return self._memory.bars(self)

    def enter(self, party: int) -> None:
        """Count what the connection holds, and will hold, for an org."""
        self._memory.enter(self, party)

    def hold(self, size: int, now: float) -> None:
        """Count a whole request that has arrived."""
        if not self.whole:
            self._since = now
            self._memory.unanswered[self] = None
        self.whole += size
        self._memory.hold(self, size)

    def release(self, size: int, now: float) -> None:
        """Uncount a whole request; resume every connection that this makes room for."""
        self._since = now
        self.whole -= size
        if not self.whole:
            del self._memory.unanswered[self]
        self._memory.release(self, size)

    def hold_partial(self, size: int, now: float, *, is_new: bool) -> None:
        """Set the size of the unfinished request. May close connections, also this one."""
        if is_new and not self.whole:
            self._since = now
        grows = size > self.partial
        self._memory.set_partial(self, size)
        if grows:
            self._memory.make_room(self, now)

    def wait_for_room(self) -> None:
        """Call `resume` once the connection may be read from."""
        self._memory.waiting[self] = None

    def connection_lost(self) -> None:
        """Uncount the unfinished request. Whole requests are held until they are answered."""
        self._close = self._resume = ignore
        self._memory.waiting.pop(self, None)
        self._memory.set_partial(self, 0)
        self.sums.connections -= 1
        self.org.connections -= 1
        self._memory.forget(self)

    def weight(self, size: int, now: float) -> float:
        """Return bytes times seconds."""
        return size * (1.0 + now - self._since)

    def evict(self, reason: str) -> None:
        """Close the connection. Its unfinished request is not held from now on."""
        self._memory.set_partial(self, 0)
        self._close(reason)

    def resume(self) -> None:
        """Let the connection be read from."""
        self._resume()


class RequestMemory:
    """Counts request bytes; resumes paused connections when there is room again."""

    def __init__(self, limit: int, per_address: int = 0) -> None:
        """Bound all connections by `limit`, those of one address by `per_address`; 0: no bound."""
        self._limit = limit
        self._per_address = per_address or limit
        self._per_connection = limit // _CONNECTION_SHARE
        self._all = _Sums()
        self._addresses: dict[str, _Sums] = {}
        self._orgs: dict[int, _Sums] = {NO_ORG: _Sums()}
        self._unfinished: dict[HeldRequests, None] = {}
        self._full_since: float | None = None
        self.unanswered: dict[HeldRequests, None] = {}
        """Connections with whole requests."""
        self.waiting: dict[HeldRequests, None] = {}
        """Connections that wait for room."""
        self.peak = 0
        """The most bytes that were held since this was last set."""
        self.evicted = 0
        """Connections closed to make room."""

    @property
    def held(self) -> int:
        """Bytes held of whole and unfinished requests."""
        return self._all.whole + self._all.partial

    @property
    def full(self) -> bool:
        """Whether orgs with more than their share may not be read from."""
        return self._all.whole > self._limit

    def open(
        self, address: str, close: Callable[[str], None], resume: Callable[[], None]
    ) -> HeldRequests:
        """Return the account of a new connection.

        `close` is called with a reason when the connection must make room, `resume` when the
        connection waits for room and has it.
        """
        sums = self._addresses.setdefault(address, _Sums())
        sums.connections += 1
        self._orgs[NO_ORG].connections += 1
        return HeldRequests(self, address, sums, self._orgs[NO_ORG], close, resume)

    def relieve(self, now: float) -> None:
        """Close a connection if unanswered requests have stopped all reading for too long.

        Call it every few seconds. A client can park one request and send many more after it.
        """
        if not self.full:
            self._full_since = None
        elif self._full_since is None:
            self._full_since = now
        elif now - self._full_since >= _PATIENCE:
            self._full_since = now
            share = self._share
            large = [held for held in self.unanswered if held.org.whole > share]
            self._evict(large, lambda held: held.weight(held.whole, now))

    # --- for HeldRequests -------------------------------------------------------------------

    @property
    def _share(self) -> int:
        """An equal share of the limit for each org that holds anything."""
        orgs = sum(1 for each in self._orgs.values() if each.whole or each.partial)
        return self._limit // max(1, orgs)

    def enter(self, held: HeldRequests, party: int) -> None:
        """Move what a connection holds to its org."""
        sums = self._orgs.setdefault(party, _Sums())
        for each, sign in ((held.org, -1), (sums, 1)):
            each.connections += sign
            each.whole += sign * held.whole
            each.partial += sign * held.partial
        held.org, held.party = sums, party

    def bars(self, held: HeldRequests) -> bool:
        """Whether this connection may not be read from."""
        if held.whole > self._per_connection or held.sums.whole > self._per_address:
            return True
        return self._all.whole > self._limit and held.org.whole > self._share

    def hold(self, held: HeldRequests, size: int) -> None:
        """Add bytes of whole requests."""
        held.sums.whole += size
        held.org.whole += size
        total = self._all
        total.whole += size
        if total.whole + total.partial > self.peak:
            self.peak = total.whole + total.partial

    def set_partial(self, held: HeldRequests, size: int) -> None:
        """Set the bytes of the unfinished request of a connection."""
        more = size - held.partial
        if not more:
            return
        held.partial = size
        held.sums.partial += more
        held.org.partial += more
        self._all.partial += more
        self.peak = max(self.peak, self.held)
        if size:
            self._unfinished[held] = None
        else:
            del self._unfinished[held]

    def make_room(self, held: HeldRequests, now: float) -> None:
        """Bring the unfinished requests of the address, and of all, below their limits.

        Closes the connections with the most bytes times seconds.
        """
        if held.sums.partial > self._per_address:
            neighbours = [h for h in self._unfinished if h.sums is held.sums]
            self._shrink(held.sums, self._per_address, neighbours, now)
        if self._all.partial > self._limit:
            share = self._share
            large = [each for each in self._unfinished if each.org.partial > share]
            self._shrink(self._all, self._limit, large, now)

    def release(self, held: HeldRequests, size: int) -> None:
        """Remove bytes of whole requests; resume the waiting connections that have room now."""
        sums, org = held.sums, held.org
        was_full = self.full
        was_large = was_full and org.whole > self._share
        barred = was_full or sums.whole > self._per_address
        sums.whole -= size
        org.whole -= size
        self._all.whole -= size
        self.forget(held)
        if not self.waiting:
            return
        # Other connections than its own are looked at only if the release can matter to them.
        if self.full:
            shrank = was_large and org.whole <= self._share
            others = [each for each in self.waiting if shrank and each.org is org]
        elif barred and sums.whole <= self._per_address:
            others = list(self.waiting)
        else:
            others = []
        for each in others or [held]:
            if each in self.waiting and not self.bars(each):
                del self.waiting[each]
                each.resume()

    def forget(self, held: HeldRequests) -> None:
        """Forget the address and the org of a lost connection that hold nothing."""
        if not held.sums.connections and not held.sums.whole:
            self._addresses.pop(held.address, None)
        if not held.org.connections and not held.org.whole and held.party != NO_ORG:
            self._orgs.pop(held.party, None)

    def _shrink(self, sums: _Sums, limit: int, held: list[HeldRequests], now: float) -> None:
        """Evict down to a little less than the limit, so that the next byte evicts none."""
        while held and sums.partial > limit - limit // 8:
            victim = max(held, key=lambda each: each.weight(each.partial, now))
            held.remove(victim)
            self.evicted += 1
            victim.evict("unfinished requests hold too much memory")

    def _evict(self, held: Iterable[HeldRequests], weight: Callable[[HeldRequests], float]) -> None:
        victim = max(held, key=weight, default=None)
        if victim is not None:
            self.evicted += 1
            victim.evict("unanswered requests hold too much memory")


@dataclass(frozen=True, slots=True)
class StuckClient(Generic[T]):
    """A client that has not read a response for some time.

    Attributes:
        client: its connection.
        org: its org's responses.
        unread: bytes in memory that it has not read.
        seconds: since it has read anything.
    """

    client: T
    org: OrgResponses
    unread: int
    seconds: float


class ResponseMemory:
    """Counts the bytes of responses that are requested from brokers or not yet sent.

    Each org has an equal share. `n` orgs hold at most 1 + 1/2 + ... + 1/n of the limit, and each
    connection RESPONSE_FLOOR on top: an org that comes later has its share at once.
    """

    def __init__(self, limit: int) -> None:
        self.budget = FairBudget(limit)
        self._orgs: WeakValueDictionary[int, OrgResponses] = WeakValueDictionary()
        self._when_room: list[Callable[[], None]] = []

    @property
    def held(self) -> int:
        """Bytes requested and not yet received, or received and not yet taken by the system."""
        return self.budget.held

    @property
    def excess(self) -> int:
        """Bytes held above the limit; negative below it."""
        return self.budget.held - self.budget.limit

    def of(self, party: int) -> OrgResponses:
        """The responses of one org; of NO_ORG: of clients that have not logged in yet."""
        found = self._orgs.get(party)
        if found is None:
            found = self._orgs[party] = OrgResponses(self)
        return found

    def is_full(self, party: int) -> bool:
        """Whether no long response may be made for an org: the limit is exceeded, and by it."""
        if self.excess <= 0:
            return False
        found = self._orgs.get(party)
        return found is not None and found.excess > 0

    def when_room(self, call: Callable[[], None]) -> None:
        """Call this whenever bytes are released."""
        self._when_room.append(call)

    def to_close(self, stuck: Iterable[StuckClient[T]]) -> Iterator[T]:
        """The clients to disconnect until the limit is kept: most bytes times seconds first.

        Only those of orgs above their shares, as far as these are above them.
        """
        excess = self.excess
        if excess <= 0:
            return
        surplus: dict[OrgResponses, int] = {}
        for each in sorted(stuck, key=lambda each: each.unread * each.seconds, reverse=True):
            left = surplus.setdefault(each.org, each.org.excess)
            if left <= 0 or each.unread <= 0:
                continue
            yield each.client
            surplus[each.org] = left - each.unread
            excess -= each.unread
            if excess <= 0:
                return

    # --- for OrgResponses -------------------------------------------------------------------

    def released(self) -> None:
        """Tell those that wait for room."""
        for call in self._when_room:
            call()


class OrgResponses:
    """The response bytes of one org's clients.

    A fetch never waits. It may return a share of what is left of the limit, or of the org's own
    share if that is more, and always RESPONSE_FLOOR.
    """

    def __init__(self, memory: ResponseMemory) -> None:
        self._memory = memory
        self._share = memory.budget.open()

    @property
    def held(self) -> int:
        """As `ResponseMemory.held`, of this org."""
        return self._share.held

    @property
    def excess(self) -> int:
        """Bytes held above the org's share; negative below it."""
        return self._share.held - self._share.size

    def allowance(self, wanted: int) -> int:
        """Return how large a response may be: a power of two within a share of what is left, or
        `wanted` if that is less."""
        left = -min(self._memory.excess, self.excess)
        share = max(RESPONSE_FLOOR, left // _RESPONSE_SHARE)
        return min(wanted, 1 << (share.bit_length() - 1))

    def hold(self, size: int) -> None:
        """Add bytes; a negative size releases them."""
        if size:
            self._memory.budget.hold(self._share, size)
            if size < 0:
                self._memory.released()

    def release(self, size: int) -> None:
        """Remove bytes."""
        self.hold(-size)
