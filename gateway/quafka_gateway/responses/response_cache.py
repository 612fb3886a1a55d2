"""A cache of encoded long responses that many clients request."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable

from quafka_gateway.fair_budget import FairBudget, OrgShare
from quafka_gateway.memory import OrgResponses
from quafka_gateway.responses.encoded_response import EncodedResponse


class ResponseCache:
    """Keeps the responses used last, and makes no response twice at a time.

    The bytes kept are counted in the org's response memory.
    """

    def __init__(self, limit: int, memory: OrgResponses, share: OrgShare | None = None) -> None:
        """At most `limit` bytes are kept.

        `share`: the org's share of a bound that all orgs have together, instead of `limit`.
        """
        self._room = (share or FairBudget(limit).open()).part(self._evict_one)
        self._memory = memory
        self._kept: OrderedDict[Hashable, tuple[EncodedResponse, int]] = OrderedDict()
        self._making: dict[Hashable, asyncio.Task[EncodedResponse]] = {}

    @property
    def held(self) -> int:
        """Bytes kept."""
        return self._room.held

    def clear(self) -> None:
        """Drop all responses."""
        while self._kept:
            self._evict_one()

    async def get(
        self, key: Hashable, make: Callable[[], Awaitable[EncodedResponse]]
    ) -> EncodedResponse:
        """Return the response under this key. Two responses with equal keys must be equal.

        Callers that come while a response is being made share it: only the first caller's `make`
        is called.
        """
        known = self._kept.get(key)
        if known is not None:
            self._kept.move_to_end(key)
            return known[0]
        making = self._making.get(key)
        if making is None:
            making = self._making[key] = asyncio.create_task(self._make(key, make))
            making.add_done_callback(_retrieve_exception)
        return await asyncio.shield(making)

    async def _make(
        self, key: Hashable, make: Callable[[], Awaitable[EncodedResponse]]
    ) -> EncodedResponse:
        try:
            response = await make()
        finally:
            del self._making[key]
        own = response.size - response.shared
        if own > self._room.limit:
            return response
        shared = EncodedResponse(response.kind, response.body, response.errors, response.size)
        self._keep(key, shared, own)
        return shared

    def _keep(self, key: Hashable, response: EncodedResponse, own: int) -> None:
        self._kept[key] = response, own
        self._count(own)
        self._room.settle()

    def _evict_one(self) -> None:
        _, (_, size) = self._kept.popitem(last=False)
        self._count(-size)

    def _count(self, size: int) -> None:
        self._room.hold(size)
        self._memory.hold(size)


def _retrieve_exception(task: asyncio.Task[EncodedResponse]) -> None:
    """Retrieve the exception: if every caller has gone, asyncio would log it."""
    if not task.cancelled():
        task.exception()
