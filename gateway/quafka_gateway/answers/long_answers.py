"""Who may make a long answer now: few at a time, and nobody while answers hold too much memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count

from quafka_gateway.response_memory import ResponseMemory
from quafka_telemetry.turns import Turns

_AT_A_TIME = 4


class LongAnswers:
    """Turns of all connections of one gateway, in the order of asking."""

    def __init__(self, memory: ResponseMemory) -> None:
        self._turns = Turns(_AT_A_TIME, lambda: memory.excess > 0)
        self._numbers = count()
        memory.when_room(self._turns.admit)

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """Wait for a turn; it ends with the context, when the answer is made and counted."""
        number = next(self._numbers)
        try:
            await self._turns.take(number)
            yield
        finally:
            self._turns.give(number)
