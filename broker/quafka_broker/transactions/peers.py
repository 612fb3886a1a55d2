"""The other brokers as seen by transactions."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol

from quafka_mesh_ops.ops.base import Op, R


class PeerError(Exception):
    """Another broker has not answered an op, or has refused it. The op may have been executed."""


class Peers(Protocol):
    """Sends ops to the brokers of `mesh.brokers`."""

    @property
    def node_id(self) -> str:
        """The node id of this broker."""
        ...

    @property
    def others(self) -> tuple[str, ...]:
        """The node ids of the other brokers."""
        ...

    def call(self, broker: str, op: Op[R], org: int) -> Coroutine[Any, Any, R]:
        """Send an op to the broker with this node id, one of `others`.

        Raises:
            PeerError: no answer within a few seconds, or an error.
        """
        ...


class NoPeers:
    """The peers of a broker that knows no others."""

    node_id = ""
    others: tuple[str, ...] = ()

    async def call(self, broker: str, op: Op[R], org: int) -> R:
        """Raises PeerError."""
        raise PeerError(f"{broker[:16]} is not in mesh.brokers")
