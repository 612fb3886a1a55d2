"""Bounds how many long responses are made at a time; stops those of orgs that hold too much."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count

from quafka_gateway.memory import ResponseMemory
from quafka_loop.log_context import current_party
from quafka_loop.turns import OpTurns

_AT_A_TIME = 4


class LongResponseLimiter:
    """Admits the long responses of all connections; orgs take turns."""

    def __init__(self, memory: ResponseMemory) -> None:
        self._turns = OpTurns(_AT_A_TIME, memory.is_full)
        self._numbers = count()
        memory.when_room(self._turns.admit)

    @asynccontextmanager
    async def admitted(self) -> AsyncGenerator[None]:
        """Wait for admission; leave the context when the response is made and counted."""
        number = next(self._numbers)
        try:
            await self._turns.acquire(number, current_party())
            yield
        finally:
            self._turns.release(number)
