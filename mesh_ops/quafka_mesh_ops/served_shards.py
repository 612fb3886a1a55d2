"""The shards that a broker serves over the mesh, each with its handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from quafka_mesh_ops.handlers import Handler
from quafka_mesh_ops.ops.base import AnyOp, OpCode
from quafka_mesh_ops.ops.table import OPS

ServedOp = tuple[type[AnyOp], Handler]
"""The type and the handler of an op."""

Served = Mapping[int, ServedOp]
"""Each op by its code."""

DEFAULT_SHARD = 0
"""The shard of connections that name none."""


class ServedShards:
    """The shards of one broker. A shard comes and goes while the broker runs."""

    def __init__(
        self,
        everywhere: Mapping[OpCode, Handler],
        shards: Mapping[int, Mapping[OpCode, Handler]],
    ) -> None:
        """`everywhere`: the ops that concern the broker, and no shard."""
        self.everywhere = dict(_served(everywhere))
        self._shards: dict[int, Served] = {}
        self._expected: dict[int, asyncio.Future[None]] = {}
        for number, handlers in shards.items():
            self.add(number, handlers)

    def serve_everywhere(self, handlers: Mapping[OpCode, Handler]) -> None:
        """Add ops that concern the broker, for the connections that come from now on."""
        self.everywhere.update(_served(handlers))

    def add(self, number: int, handlers: Mapping[OpCode, Handler]) -> None:
        """Serve a shard from now on."""
        self._shards[number] = _served(handlers)
        self.expect_no_more(number)

    def expect(self, number: int) -> None:
        """A shard will be served here in a moment: connections for it wait."""
        if number not in self._expected:
            self._expected[number] = asyncio.get_running_loop().create_future()

    def expect_no_more(self, number: int) -> None:
        """An expected shard is here, or will not come."""
        waiting = self._expected.pop(number, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def arrival(self, number: int, seconds: float) -> None:
        """Wait, at most this long, until an expected shard is here or will not come."""
        waiting = self._expected.get(number)
        if waiting is not None:
            await asyncio.wait([waiting], timeout=seconds)

    def remove(self, number: int) -> None:
        """Accept no more connections for a shard. Open ones continue."""
        self._shards.pop(number, None)

    def find(self, number: int) -> Served | None:
        """The handlers of a shard; None: it is not here."""
        return self._shards.get(number)


def _served(handlers: Mapping[OpCode, Handler]) -> Served:
    return {int(code): (OPS[code], handler) for code, handler in handlers.items()}
