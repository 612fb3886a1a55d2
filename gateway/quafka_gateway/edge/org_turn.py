"""The turns of one client's org on the event loop, and of its socket."""

from __future__ import annotations

import asyncio

from quafka_gateway.security.session import ClientSession
from quafka_loop.fair_selector import selector_of
from quafka_loop.fair_turns import FairTurns, Work


class OrgTurn:
    """When the work for one connection runs. The org is the session's, which a login may change.

    While only clients of one org are connected, all work runs at once.

    Attributes:
        turns: those of all orgs. What runs for each request asks them whether they are shared.
    """

    __slots__ = ("_joined", "_session", "turns")

    def __init__(self, turns: FairTurns, session: ClientSession) -> None:
        self.turns = turns
        self._session = session
        self._joined = -1  # the descriptor of a socket that is read in turns

    @property
    def shared(self) -> bool:
        """Whether there are other orgs."""
        return self.turns.shared

    def run(self, work: Work) -> None:
        """Run work now, or in a turn of the org. It must not raise."""
        self.turns.run(self._session.tenant.party, work)

    def defer(self, work: Work) -> None:
        """Run work in a later turn of the org."""
        self.turns.defer(self._session.tenant.party, work)

    @property
    def joined(self) -> bool:
        """Whether the socket is read in turns of the org."""
        return self._joined >= 0

    def join(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        """Read the connection's socket in turns of the org, which is final."""
        selector, found = selector_of(loop), transport.get_extra_info("socket")
        if selector is None or found is None or found.fileno() < 0:
            return
        selector.held_back = self.turns.waiting
        self._joined = found.fileno()
        selector.join(self._joined, self._session.tenant.party)

    def leave(self, loop: asyncio.AbstractEventLoop) -> None:
        """The connection is lost; its socket is not closed yet."""
        selector = selector_of(loop)
        if selector is not None and self._joined >= 0:
            selector.leave(self._joined)
            self._joined = -1
