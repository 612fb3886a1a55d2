"""The connections of a producer: requests on abandoned ones are refused. Pure.

A client that reconnects repeats unanswered requests. The first copy may still be on its way, and
arrive when the next transaction has begun: an EndTxn would then commit half of it, and a batch
would join it. Clients before KIP-890 have no epoch that distinguishes the copies. TCP does: a
producer sends its requests of one kind on one connection, and never returns to one that it has
closed.

The log has the connections of a transaction's first requests, so that a request that is delayed
past a restart of the broker is refused, too.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Sequence
from enum import IntEnum

CONNECTION = struct.Struct(">8sQ")
"""A gateway's instance, and the number of a connection at it."""
_GATEWAYS = 16


class ConnectedRequestKind(IntEnum):
    """Requests that a client sends on different connections.

    Offsets go to the coordinator of their group, not to that of the transaction.
    """

    COORDINATOR = 0
    PRODUCE = 1
    OFFSETS = 2


class Connections:
    """The connections on which one producer has sent requests of one kind."""

    __slots__ = ("_current", "_newest", "_saved")

    def __init__(self) -> None:
        self._current = self._saved = b""
        # The newest number of each gateway instance. None while there has been one connection, as
        # for most of the many producers.
        self._newest: OrderedDict[bytes, int] | None = None

    def admit(self, connection: bytes) -> bool:
        """Whether a request may be served: the producer has not abandoned its connection.

        An empty or unknown form, sent by older gateways, is not checked.
        """
        if connection == self._current or len(connection) != CONNECTION.size:
            return True
        if self._current:
            newest = self._newest
            if newest is None:
                newest = self._newest = OrderedDict([CONNECTION.unpack(self._current)])
            instance, number = CONNECTION.unpack(connection)
            if number <= newest.get(instance, -1):
                return False
            newest[instance] = number
            newest.move_to_end(instance)
            if len(newest) > _GATEWAYS:
                newest.popitem(last=False)
        self._current = connection
        return True

    @property
    def is_saved(self) -> bool:
        """Whether the log has the present connection."""
        return self._current == self._saved

    def dump(self) -> list[bytes]:
        """Dump the newest connection of each gateway, the present one last."""
        if self._newest is None:
            return [self._current] if self._current else []
        return [CONNECTION.pack(*each) for each in self._newest.items()]

    def load(self, connections: Sequence[bytes]) -> None:
        """Load the result of `dump` from the log; older connections are already known."""
        for connection in connections:
            self.admit(connection)
        self._saved = connections[-1]
