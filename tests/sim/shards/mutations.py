"""Defects that the simulation must find: each takes one step of the protocol away.

Steps against rarer accidents have tests of their own: `tests/unit/broker/chain/test_races.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from typing import Any
from unittest.mock import patch

from quafka_broker.chain import chain, takeover
from quafka_broker.chain.attempts import Attempts
from quafka_broker.chain.chain import Chain
from quafka_broker.chain.manifest import StoredManifest, read_manifest
from quafka_broker.chain.store import ChainStore
from quafka_objects.errors import ObjectExistsError
from quafka_proto.chain_format import (
    ENTRIES,
    ChainHeader,
    ShardManifest,
    chain_path,
    encode_manifest,
    manifest_path,
)
from tests.sim.shards import broker
from tests.sim.shards.broker import SimulatedBroker
from tests.sim.shards.ledger import Ledger

_acknowledge = Chain._acknowledge
_create_fences = takeover._create_fences


def _window() -> int:
    return int(vars(takeover)["WINDOW"])  # this run's


def _at_once(self: Chain) -> None:
    for pending in self._pending:
        if pending.exists and not pending.done.done():
            pending.done.set_result(None)
    _acknowledge(self)


async def _refused_is_ours(
    store: ChainStore, header: ChainHeader, data: bytes, attempts: Attempts
) -> ChainHeader:
    path = chain_path(header.shard, header.seq)
    with suppress(ObjectExistsError):
        await attempts.until_answered(lambda: store.create(path, data))
    return header


async def _no_fence(store: Any, mine: Any, seq: int, random: Any) -> tuple[int, list[ChainHeader]]:
    return seq - _window(), []


async def _one_fence(store: Any, mine: Any, seq: int, random: Any) -> tuple[int, list[ChainHeader]]:
    late: list[ChainHeader] = []
    while (found := await _create_fences(store, mine, [seq], random)) != [None]:
        late += [header for header in found if header is not None]
        seq += 1
    return seq + 1 - _window(), late


def _all_are_valid(headers: Iterable[ChainHeader]) -> list[ChainHeader]:
    return [header for header in headers if header.kind == ENTRIES]


async def _swapped_if_answered(
    store: ChainStore,
    before: StoredManifest | None,
    after: ShardManifest,
    _: Any,
    attempts: Attempts,
) -> tuple[bool, StoredManifest | None]:
    path, data = manifest_path(after.shard), encode_manifest(after)
    try:
        if before is None:
            await attempts.until_answered(lambda: store.create(path, data))
        else:
            await attempts.until_answered(lambda: store.replace(path, data, before.etag))
    except OSError:
        pass
    found = await read_manifest(store, after.shard)
    return found is not None and found.manifest.epoch == after.epoch, found


async def _answered_at_once(*_: object) -> None:
    pass


async def _unawaited(self: SimulatedBroker, chain: Chain, values: list[int]) -> None:
    self._put(chain, values)


async def _one_by_one(self: SimulatedBroker, chain: Chain, values: list[int]) -> None:
    for value in values:
        await chain.room()
        await self._put(chain, [value])


@contextmanager
def _patched(*changes: tuple[object, str, object]) -> Generator[None]:
    if not changes:
        yield
        return
    (target, name, value), *others = changes
    with patch.object(target, name, value), _patched(*others):
        yield


MUTATIONS: dict[str, Callable[[], Any]] = {
    "acknowledged before its predecessors": lambda: _patched((Chain, "_acknowledge", _at_once)),
    "a refusal means that it is ours": lambda: _patched(
        (chain, "create_or_find", _refused_is_ours)
    ),
    "no fence": lambda: _patched((takeover, "_fence", _no_fence)),
    "one fence": lambda: _patched((takeover, "_fence", _one_fence)),
    "old epochs are not ignored": lambda: _patched(
        (takeover, "valid_objects", _all_are_valid), (broker, "valid_objects", _all_are_valid)
    ),
    "a manifest of the same epoch is ours": lambda: _patched(
        (takeover, "swap_manifest", _swapped_if_answered)
    ),
    "what is repeated is answered at once": lambda: _patched(
        (SimulatedBroker, "_repeated", staticmethod(_answered_at_once))
    ),
    "the end of a transaction is answered at once": lambda: _patched(
        (SimulatedBroker, "_write", _unawaited)
    ),
    "a transaction and its offset are two objects": lambda: _patched(
        (SimulatedBroker, "_write", _one_by_one)
    ),
    "a new owner forgets transactions": lambda: _patched(
        (SimulatedBroker, "_known", staticmethod(lambda _: Ledger()))
    ),
}
