"""Which datagram size a path takes, found while a connection lives (after RFC 8899). Pure.

Large datagrams cost less, too large ones vanish. The kernel knows the MTU of the first hop; what
lies behind it shows only by trying. So a connection begins with what every path takes, and asks
with a probe, a packet that has nothing in it but its size, whether the path takes more. A probe
that is lost costs nothing else. The sizes are tried from the largest down; later again from time
to time, for paths change. When packets of the size in use vanish, it begins anew from the floor.
"""

from __future__ import annotations

from collections.abc import Callable

RUNGS = (60_000, 8_900, 1_452, 1_200)
"""One host; jumbo frames; Ethernet; the least that QUIC may count on (RFC 9000 section 14)."""
FLOOR = RUNGS[-1]
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds between rounds of probes; it doubles with each that brought nothing."""
_HEADERS = {4: 20 + 8, 6: 40 + 8}  # IP and UDP


def largest(mtu: int, ip_version: int) -> int:
    """The highest rung that a route with this MTU takes."""
    room = mtu - _HEADERS[ip_version]
    return next((rung for rung in RUNGS if rung <= room), FLOOR)


class DatagramLadder:
    """The size of one direction of a connection's datagrams.

    `route` says what the route takes at most, as far as is known; it is asked before each round.

    Attributes:
        size: bytes of UDP payload of a full datagram.
        is_fixed: whether it was configured, and stays whatever happens.
        next_at: when to send a probe; infinite while one is under way, and for a fixed size.
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
        """One that stays where it is."""
        ladder = cls(lambda: size)
        ladder.size = size
        ladder.is_fixed = True
        ladder.next_at = float("inf")
        return ladder

    def probe(self, now: float) -> int:
        """The size of the probe that is due; 0 if there is none, and the next is set."""
        if not self._untried:
            top = self._route()
            self.size = min(self.size, top)
            self._untried = [rung for rung in RUNGS[::-1] if self.size < rung <= top]
        if not self._untried:
            self._rest(now)
            return 0
        self.next_at = float("inf")
        return self._untried[-1]

    def arrived(self, size: int, now: float) -> None:
        """The path takes probes of this size."""
        if size in self._untried:
            self.size = size
            self._untried = []
            self._pause = FIRST_PAUSE
            self._rest(now)

    def lost(self, size: int, now: float) -> None:
        """It does not, or has lost one for another reason."""
        if size not in self._untried:
            return
        self._untried = [rung for rung in self._untried if rung < size]
        if self._untried:
            self.next_at = now
        else:
            self._rest(now)

    def swallowed(self, now: float) -> None:
        """The path has ceased to take the size in use: find the largest that it does."""
        if self.is_fixed or self.size == FLOOR:
            return
        self._untried = [rung for rung in RUNGS[::-1] if FLOOR < rung < self.size]
        self.size = FLOOR
        self._pause = FIRST_PAUSE
        self.next_at = now + (0.0 if self._untried else FIRST_PAUSE)

    def moved(self, now: float) -> None:
        """It is another path now."""
        if self.is_fixed:
            return
        self.size = FLOOR
        self._untried = []
        self._pause = FIRST_PAUSE
        self.next_at = now

    def _rest(self, now: float) -> None:
        self.next_at = now + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
