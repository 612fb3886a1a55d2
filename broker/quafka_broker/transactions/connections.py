"""The connections of a producer: requests of those that it has left are refused. Pure.

A client that reconnects sends a request again if it got no answer. The first copy may still be on
its way, and arrive when the next transaction has begun: an EndTxn would then commit half of it, and
a batch would join it. Clients before KIP-890 have no epoch that tells the copies apart. TCP does: a
producer sends its requests of one kind on one connection, and never returns to one it has closed.

The log has the connections as of a transaction's first requests, so that a request which is late
over a restart of the broker is refused, too.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Sequence
from enum import IntEnum

CONNECTION = struct.Struct(">8sQ")
"""A gateway's instance, and the number of a connection at it."""
_GATEWAYS = 16


class Kind(IntEnum):
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
        # The newest number of each gateway instance. None while there was one connection, as with
        # most producers, of which there are many.
        self._newest: OrderedDict[bytes, int] | None = None

    def admit(self, connection: bytes) -> bool:
        """Whether a request may be served: the producer has not moved on from its connection.

        An empty or unknown form is not checked: an older gateway sends it.
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
        """The newest connection of each gateway, the present one last."""
        if self._newest is None:
            return [self._current] if self._current else []
        return [CONNECTION.pack(*each) for each in self._newest.items()]

    def load(self, connections: Sequence[bytes]) -> None:
        """The log has the result of `dump`; older connections are known already."""
        for connection in connections:
            self.admit(connection)
        self._saved = connections[-1]
