"""Which datagram size a path takes: large ones cost less, too large ones vanish.

The kernel knows the MTU of the first hop; what lies behind it shows only by silence. So the size
begins at what the route has and steps down whenever a connection suggests that it was too large:
a handshake that nobody answered (the client's first datagram has the full size), EMSGSIZE, or
large packets that are lost while small ones arrive. A size that worked is kept. Pure.
"""

from __future__ import annotations

RUNGS = (60_000, 8_900, 1_452, 1_200)
"""One host; jumbo frames; Ethernet; the least that QUIC may count on (RFC 9000 section 14)."""
FLOOR = RUNGS[-1]
_HEADERS = {4: 20 + 8, 6: 40 + 8}  # IP and UDP


class DatagramLadder:
    """The size for the next connection to one peer.

    Attributes:
        size: bytes of UDP payload; 0 until the route is known.
    """

    def __init__(self, fixed: int | None = None) -> None:
        """`fixed`: a size that was configured, and is kept whatever happens."""
        self._fixed = fixed
        self._top: int = 0
        self.size: int = fixed or 0

    @property
    def may_step_down(self) -> bool:
        """Whether there is a smaller size to try."""
        return self._fixed is None and self.size > FLOOR

    def route_is(self, mtu: int, ip_version: int) -> None:
        """What the kernel says of the route, before each connection."""
        top: int = min(RUNGS[0], max(FLOOR, mtu - _HEADERS[ip_version]))
        if top < RUNGS[0]:
            top = next(rung for rung in RUNGS if rung <= top)
        if self._fixed is None and top != self._top:  # a new route deserves a new try
            self._top = self.size = top

    def too_large(self) -> None:
        """The path did not take this size. Below the lowest, start from the top again: whoever
        answers to no size at all is away."""
        if self._fixed is None:
            smaller = [rung for rung in RUNGS if rung < self.size]
            self.size = smaller[0] if smaller else self._top
