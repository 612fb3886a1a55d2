"""The shards that a broker serves over the mesh, each with its handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from quafka_mesh_ops.handlers import Handler
from quafka_mesh_ops.ops.base import AnyOp, OpCode
from quafka_mesh_ops.ops.table import OPS
from quafka_telemetry.tracing import TraceContext

ServedOp = tuple[type[AnyOp], Handler]
"""The type and the handler of an op."""

Served = Mapping[int, ServedOp]
"""Each op by its code."""

DEFAULT_SHARD = 0
"""The shard of connections that name none."""

NEWS_SECONDS = 10.0
"""How long a takeover explains that ops have waited for the shard."""


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
        self._takeovers: dict[int, tuple[str, float]] = {}
        """The traces of recent takeovers, and until when they are recent (loop time)."""
        for number, handlers in shards.items():
            self.add(number, handlers)

    def serve_everywhere(self, handlers: Mapping[OpCode, Handler]) -> None:
        """Add ops that concern the broker, for the connections that come from now on."""
        self.everywhere.update(_served(handlers))

    def add(
        self,
        number: int,
        handlers: Mapping[OpCode, Handler],
        takeover: TraceContext | None = None,
    ) -> None:
        """Serve a shard from now on. `takeover`: the trace of what made it come here."""
        self._shards[number] = _served(handlers)
        if takeover is not None:
            until = asyncio.get_running_loop().time() + NEWS_SECONDS
            self._takeovers[number] = takeover.traceparent, until
        self.expect_no_more(number)

    def recent_takeover(self, number: int) -> str:
        """The `traceparent` of a takeover that ended just now; empty: there is none."""
        traceparent, until = self._takeovers.get(number, ("", 0.0))
        if traceparent and asyncio.get_running_loop().time() > until:
            del self._takeovers[number]
            return ""
        return traceparent

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
        self._takeovers.pop(number, None)

    def find(self, number: int) -> Served | None:
        """The handlers of a shard; None: it is not here."""
        return self._shards.get(number)


def _served(handlers: Mapping[OpCode, Handler]) -> Served:
    return {int(code): (OPS[code], handler) for code, handler in handlers.items()}
