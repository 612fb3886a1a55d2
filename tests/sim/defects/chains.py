"""Defects of a log in an object store: commit, takeover, collection, routes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from quafka_broker.chain import collect, takeover
from quafka_broker.chain.chain import Chain
from quafka_broker.chain.collect import Collector, collect_regularly
from quafka_broker.partitions.errors import InDoubtError
from quafka_broker.shard import stored_log
from quafka_broker.wal.chain_durability import ChainDurability
from quafka_broker.wal.commit_group import CommitGroup
from quafka_gateway.cluster.shard_places import ShardPlaces
from quafka_loop.eager_task import DirectFuture
from quafka_objects.store import ObjectInfo
from quafka_proto.chain_format import ENTRIES, WINDOW, ChainHeader
from tests.sim.defects.defect import KILLS, RESTARTS, Defect, Where, change


def _acknowledged_before_the_object() -> None:
    append = Chain.append

    def at_once(self: Chain, *what: Any) -> asyncio.Future[None]:
        append(self, *what).add_done_callback(lambda done: done.cancelled() or done.exception())
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    change(Chain, "append", at_once)


def _read_above_the_high_watermark() -> None:
    """Records are visible when their object is sent; producers wait for it, as they should."""
    append, commit = Chain.append, ChainDurability.commit
    exists: dict[Any, asyncio.Future[None]] = {}

    def visible(self: Chain, *what: Any) -> asyncio.Future[None]:
        exists[self] = append(self, *what)
        exists[self].add_done_callback(lambda done: done.cancelled() or done.exception())
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def commit_early(self: ChainDurability, group: CommitGroup) -> None:
        held = [each.done for each in group.appends]
        for each in group.appends:
            each.done = DirectFuture(loop=asyncio.get_running_loop())
        commit(self, group)

        def answer(stored: asyncio.Future[None]) -> None:
            failed = stored.cancelled() or stored.exception() is not None
            for done, offsets in zip(held, group.offsets, strict=True):
                if done.done():
                    continue
                if failed:
                    done.set_exception(InDoubtError("the object may not exist"))
                    done.exception()  # nobody may wait for it any more
                else:
                    done.set_result(offsets)

        exists[self._chain].add_done_callback(answer)

    change(Chain, "append", visible)
    change(ChainDurability, "commit", commit_early)


def _acknowledged_before_predecessors() -> None:
    acknowledge = Chain._acknowledge

    def at_once(self: Chain) -> None:
        for pending in self._pending:
            if pending.exists and not pending.done.done():
                pending.done.set_result(None)
        acknowledge(self)

    change(Chain, "_acknowledge", at_once)


def _no_fence() -> None:
    async def none(_: Any, __: Any, seq: int, ___: Any) -> tuple[int, list[ChainHeader]]:
        return seq - WINDOW, []

    change(takeover, "_fence", none)


def _old_epochs_count() -> None:
    def every(headers: Iterable[ChainHeader]) -> list[ChainHeader]:
        return [header for header in headers if header.kind == ENTRIES]

    change(takeover, "valid_objects", every)


def _epoch_not_raised() -> None:

    def same_epoch(manifest: Any, **changes: Any) -> Any:
        return replace(manifest, **{**changes, "epoch": max(1, manifest.epoch)})

    change(takeover, "replace", same_epoch)


def _collected_too_early() -> None:
    """One object too many, without the grace period in which it would not matter."""
    behind = collect._behind

    async def often(collector: Collector) -> None:
        await collect_regularly(collector, 1.0)

    def one_more(chain: Iterable[ObjectInfo], start: int) -> Iterable[ObjectInfo]:
        return behind(chain, start + 1)

    change(stored_log, "collect_regularly", often)
    change(collect, "_behind", one_more)
    change(Collector, "_due", lambda _self, unneeded, _now: list(unneeded))


def _stale_route() -> None:
    change(ShardPlaces, "learn", lambda _self, _heard: [])


_TAKEOVERS = ("pause", "partition", "one way")

DEFECTS = {
    "acknowledged before the object exists": Defect(
        _acknowledged_before_the_object, Where.STORE, faults=KILLS
    ),
    "read above the high watermark": Defect(
        _read_above_the_high_watermark, Where.STORE, faults=KILLS
    ),
    "acknowledged before its predecessors": Defect(
        _acknowledged_before_predecessors, Where.STORE, faults=KILLS
    ),
    "a takeover sets no fence": Defect(_no_fence, Where.STORE, faults=_TAKEOVERS),
    "objects of old epochs count": Defect(_old_epochs_count, Where.STORE, faults=_TAKEOVERS),
    "a takeover does not raise the epoch": Defect(
        _epoch_not_raised, Where.STORE, faults=_TAKEOVERS
    ),
    "objects are collected one commit too early": Defect(_collected_too_early, Where.STORE),
    "a route is stale after a move": Defect(_stale_route, Where.STORE, faults=RESTARTS),
}
