"""Deletes chain objects and files that a shard no longer needs. Its owner runs it.

The grace period is for readers that hold an older manifest. No needed object is ever deleted,
whatever the clocks: see `Collector.collect`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from typing import NamedTuple

from quafka_broker.chain.attempts import Attempts, in_parallel
from quafka_broker.chain.manifest import read_manifest
from quafka_broker.chain.store import ChainStore
from quafka_objects.folder import final_path
from quafka_objects.store import ObjectInfo
from quafka_proto.chain_format import (
    HEADER_SIZE,
    ShardManifest,
    chain_folder,
    chain_path,
    decode_directory,
    directory_folder,
    epoch_of,
    files_folder,
    seq_of,
)
from quafka_proto.errors import Malformed
from quafka_proto.view_format import decode_view

log = logging.getLogger("quafka.broker.store")

GRACE_S = 600.0
_DELETES_AT_ONCE = 16


async def collect_regularly(collector: Collector, each_s: float = 60.0) -> None:
    """Make a pass each minute, for ever. Damage is only logged: a takeover reports it."""
    while True:
        await asyncio.sleep(each_s)
        try:
            found = await collector.collect(asyncio.get_running_loop().time())
        except (OSError, Malformed) as e:
            log.warning("nothing is deleted from the store for now: %s", e)
        else:
            if found.objects:
                log.info("%d objects of %d bytes were deleted", found.objects, found.bytes)


class Collected(NamedTuple):
    """The objects that one pass has deleted or left."""

    objects: int = 0
    bytes: int = 0


class Collector:
    """Deletes objects that its own passes have found unneeded for a grace period.

    Args:
        epoch: this owner's.
        kept: the paths of files that are being uploaded or are not in the manifest's list yet. A
            file must be among them before its upload begins, and until the manifest names it.
        pinned: reads the paths of files that snapshots need.
    """

    def __init__(
        self,
        store: ChainStore,
        shard: int,
        epoch: int,
        kept: Callable[[], Collection[str]],
        grace_s: float = GRACE_S,
        pinned: Callable[[], Awaitable[Collection[str]]] | None = None,
    ) -> None:
        self._store = store
        self._shard = shard
        self._epoch = epoch
        self._kept = kept
        self._pinned = pinned
        self._grace_s = grace_s
        self._since: dict[str, float] = {}
        self._swept = ""
        self.unneeded = Collected()
        """The objects that the last pass has left for the grace period."""

    async def collect(self, now: float) -> Collected:
        """Make one pass; nothing is deleted if the shard has another owner.

        The needs are read after the objects were listed. So a listed file is still kept by then, or
        is named by the manifest, or is not needed. A later owner names only the files of this
        manifest and its own files, none of which existed while this manifest was in force. And
        neither `chain_start` nor that of a view ever goes back.

        Args:
            now: a monotonic clock, seconds.

        Raises:
            Malformed: the manifest or the list of files is damaged.
            ObjectNotFoundError: the list of files or the view is missing.
        """
        shard = self._shard
        files = [*await self._list(files_folder(shard)), *await self._list(directory_folder(shard))]
        chain = await self._list(chain_folder(shard), self._swept)
        needed = {*self._kept(), *(await self._pinned() if self._pinned else ())}
        found = await read_manifest(self._store, shard)
        if found is None or found.manifest.epoch != self._epoch:
            return Collected()
        manifest = found.manifest
        files_of_view, start = await self._viewed(manifest)
        needed |= await self._named(manifest) | files_of_view
        unneeded = [
            *(info for info in files if _is_unneeded(info.path, needed)),
            *_behind(chain, start),
        ]
        due = self._due(unneeded, now)
        size = sum(info.size for info in due)
        left = sum(info.size for info in unneeded) - size
        self.unneeded = Collected(len(unneeded) - len(due), left)
        await self._delete(due)
        if len(due) == len(unneeded) and start:
            self._swept = chain_path(shard, start - 1)
        return Collected(len(due), size)

    async def _list(self, folder: str, after: str = "") -> Collection[ObjectInfo]:
        return await Attempts(f"listing {folder}").until_answered(
            lambda: self._store.list_objects(folder, after)
        )

    async def _named(self, manifest: ShardManifest) -> set[str]:
        if not manifest.directory:
            return set()
        data = await self._read(manifest.directory)
        return {manifest.directory, *(file.path for file in decode_directory(data))}

    async def _viewed(self, manifest: ShardManifest) -> tuple[set[str], int]:
        """The files that readers of the view need, and their first object of the chain."""
        if not manifest.view:
            return set(), manifest.chain_start
        view = decode_view(await self._read(manifest.view), manifest.shard)
        pieces = view.manifest.pieces
        files = {piece.log for piece in pieces} | {piece.index for piece in pieces}
        return files, min(manifest.chain_start, view.chain_from)

    async def _read(self, path: str) -> bytes:
        return await Attempts(f"reading {path}").until_answered(lambda: self._store.read(path))

    def _due(self, unneeded: Iterable[ObjectInfo], now: float) -> list[ObjectInfo]:
        """The objects that were unneeded for the whole grace period."""
        since = {info: self._since.get(info.path, now) for info in unneeded}
        self._since = {info.path: when for info, when in since.items()}
        return [info for info, when in since.items() if now - when >= self._grace_s]

    async def _delete(self, due: list[ObjectInfo]) -> None:
        for start in range(0, len(due), _DELETES_AT_ONCE):
            await in_parallel(
                Attempts(f"deleting {info.path}").until_answered(
                    partial(self._store.delete, info.path)
                )
                for info in due[start : start + _DELETES_AT_ONCE]
            )


def _is_unneeded(path: str, needed: Collection[str]) -> bool:
    path = final_path(path) or path
    return path not in needed and epoch_of(path) is not None


def _behind(chain: Iterable[ObjectInfo], start: int) -> Iterable[ObjectInfo]:
    """The objects before the chain's start, except fences, which stay for ever: `chain_format`."""
    for info in chain:
        seq = seq_of(final_path(info.path) or info.path)
        if seq is None or seq >= start:
            continue
        if final_path(info.path) or info.size != HEADER_SIZE:
            yield info
