"""Finds the datagram size of a path while a connection lives (after RFC 8899). Pure.

Large datagrams cost less, too large ones vanish. The kernel knows the MTU of the first hop; the
MTU of the path must be probed. So a connection starts with the size that every path takes, and
sends probes: packets that consist of padding. The loss of a probe costs nothing else. Sizes are
tried from the largest down, and again from time to time, because paths change. When packets of the
size in use vanish, the search restarts from the floor.
"""

from __future__ import annotations

from collections.abc import Callable

RUNGS = (60_000, 8_900, 1_452, 1_200)
"""One host; jumbo frames; Ethernet; the least that QUIC requires (RFC 9000 section 14)."""
FLOOR = RUNGS[-1]
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds between rounds of probes; the pause doubles after each round without a gain."""
_HEADERS = {4: 20 + 8, 6: 40 + 8}  # IP and UDP


def largest(mtu: int, ip_version: int) -> int:
    """Return the highest rung that a route with this MTU takes."""
    room = mtu - _HEADERS[ip_version]
    return next((rung for rung in RUNGS if rung <= room), FLOOR)


class DatagramLadder:
    """The size of one direction of a connection's datagrams.

    `route` returns the largest size of the route, as far as known; called before each round.

    Attributes:
        size: bytes of UDP payload of a full datagram.
        is_fixed: whether the size is configured and never changes.
        next_at: the time of the next probe; infinite while one is in flight, and for a fixed size.
    """

    def __init__(self, route: Callable[[], int]) -> None:
        self._route = route
        self.size: int = FLOOR
        self.is_fixed = False
        self.next_at = 0.0
        self._pause = FIRST_PAUSE
        self._untried: list[int] = []  # rungs of this round, the largest last

    @classmethod
    def fixed(cls, size: int) -> DatagramLadder:
        """Make a ladder with a fixed size."""
        ladder = cls(lambda: size)
        ladder.size = size
        ladder.is_fixed = True
        ladder.next_at = float("inf")
        return ladder

    @property
    def top(self) -> int:
        """The largest size that the route takes, as far as known."""
        return self._route()

    def probe(self, now: float) -> int:
        """Return the size of the probe that is due; 0: none is, and `next_at` is set."""
        if not self._untried:
            top = self.top
            self.size = min(self.size, top)
            self._untried = [rung for rung in RUNGS[::-1] if self.size < rung <= top]
        if not self._untried:
            self._rest(now)
            return 0
        self.next_at = float("inf")
        return self._untried[-1]

    def arrived(self, size: int, now: float) -> None:
        """A probe of this size was acknowledged."""
        if size in self._untried:
            self.size = size
            self._untried = []
            self._pause = FIRST_PAUSE
            self._rest(now)

    def lost(self, size: int, now: float) -> None:
        """A probe of this size was lost, because of its size or for another reason."""
        if size not in self._untried:
            return
        self._untried = [rung for rung in self._untried if rung < size]
        if self._untried:
            self.next_at = now
        else:
            self._rest(now)

    def swallowed(self, now: float) -> None:
        """The path no longer takes the size in use: restart the search from the floor."""
        if self.is_fixed or self.size == FLOOR:
            return
        self._untried = [rung for rung in RUNGS[::-1] if FLOOR < rung < self.size]
        self.size = FLOOR
        self._pause = FIRST_PAUSE
        self.next_at = now + (0.0 if self._untried else FIRST_PAUSE)

    def moved(self, now: float) -> None:
        """The connection has moved to another path."""
        if self.is_fixed:
            return
        self.size = FLOOR
        self._untried = []
        self._pause = FIRST_PAUSE
        self.next_at = now

    def _rest(self, now: float) -> None:
        self.next_at = now + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
