"""Answers that a handler has encoded itself, and those of them that many clients are given."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass

from quafka_gateway.response_memory import ResponseMemory
from quafka_proto.message import Buffer, Message


@dataclass(frozen=True, slots=True)
class EncodedAnswer:
    """A response's body, which may be shared: it is not to be changed.

    Attributes:
        kind: what it is the bytes of.
        body: as `codec.encode` gives it.
        errors: the error codes in it.
        shared: bytes of it that are held anyway, and not once more for each client.
    """

    kind: type[Message]
    body: list[Buffer]
    errors: frozenset[int] = frozenset()
    shared: int = 0

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return sum(map(len, self.body))


class AnswerCache:
    """Keeps some answers for as long as others are not asked for; makes none twice at a time.

    What it keeps is counted in the response memory.
    """

    def __init__(self, limit: int, memory: ResponseMemory) -> None:
        """At most `limit` bytes are kept."""
        self._limit = limit
        self._memory = memory
        self._kept: OrderedDict[Hashable, tuple[EncodedAnswer, int]] = OrderedDict()
        self._making: dict[Hashable, asyncio.Task[EncodedAnswer]] = {}
        self.held = 0
        """Bytes kept."""

    async def get(
        self, key: Hashable, make: Callable[[], Awaitable[EncodedAnswer]]
    ) -> EncodedAnswer:
        """The answer under this key. Two with equal keys must be equal.

        Where it is made for several at a time, `make` of the first is called.
        """
        known = self._kept.get(key)
        if known is not None:
            self._kept.move_to_end(key)
            return known[0]
        making = self._making.get(key)
        if making is None:
            making = self._making[key] = asyncio.create_task(self._make(key, make))
            making.add_done_callback(_seen)
        return await asyncio.shield(making)

    async def _make(
        self, key: Hashable, make: Callable[[], Awaitable[EncodedAnswer]]
    ) -> EncodedAnswer:
        try:
            answer = await make()
        finally:
            del self._making[key]
        own = answer.size - answer.shared
        if own > self._limit:
            return answer
        self._keep(key, EncodedAnswer(answer.kind, answer.body, answer.errors, answer.size), own)
        return self._kept[key][0]

    def _keep(self, key: Hashable, answer: EncodedAnswer, own: int) -> None:
        self._kept[key] = answer, own
        self._count(own)
        while self.held > self._limit:
            _, (_, size) = self._kept.popitem(last=False)
            self._count(-size)

    def _count(self, size: int) -> None:
        self.held += size
        self._memory.take(size)


def _seen(task: asyncio.Task[EncodedAnswer]) -> None:
    """Its callers may have gone: then nobody else looks at what it raised."""
    if not task.cancelled():
        task.exception()
