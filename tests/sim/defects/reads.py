"""Defects of reads, and of what gateways keep: leases, caches, watermarks, rights."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from quafka_broker.leases import Leases
from quafka_broker.sources.wal import WalPartition
from quafka_gateway.fetch import cache
from quafka_gateway.fetch.cache import FetchCache
from quafka_gateway.fetch.reader import FetchReader
from quafka_gateway.security.authorizer import ClientAccess
from tests.sim.defects.defect import Defect, change


def _lease_not_honoured() -> None:
    async def at_once(*_: object) -> None:
        pass

    change(Leases, "_all_heard", at_once)


def _cache_not_invalidated() -> None:
    change(FetchCache, "drop", lambda *_: None)


def _acknowledgement_not_noticed() -> None:
    change(FetchReader, "produce_acknowledged", lambda *_: None)


def _one_batch_too_far() -> None:
    read = WalPartition._read

    def to_the_end(
        self: WalPartition, offset: int, room: Any, reading: Any, end: int
    ) -> Awaitable[Any]:
        return read(self, offset, room, reading, end + 1)

    change(WalPartition, "_read", to_the_end)


def _cache_forgets_aborted() -> None:
    change(cache, "concerning", lambda *_: ())


def _revoked_right_kept() -> None:
    """What a connection was once allowed or refused is so until its end."""
    change(ClientAccess, "forget", lambda _: None)


DEFECTS = {
    "a lease is not honoured": Defect(_lease_not_honoured, programs=("administrator",)),
    "deleted records stay in the cache": Defect(
        _cache_not_invalidated, programs=("administrator",)
    ),
    "read_committed reads one batch too far": Defect(
        _one_batch_too_far, programs=("transactions", "copier")
    ),
    "the cache forgets aborted transactions": Defect(
        _cache_forgets_aborted, programs=("transactions", "copier")
    ),
    "a revoked right is kept": Defect(_revoked_right_kept, programs=("rights",)),
    "a gateway does not notice its own produces": Defect(_acknowledgement_not_noticed),
}
