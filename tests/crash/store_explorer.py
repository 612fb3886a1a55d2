"""Kills the broker at every change of the store, and checks what another one recovers.

The folder is lost each time. So is everything in the store that the manifest does not name: the
collector may have been anywhere.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from dataclasses import dataclass
from pathlib import Path

from quafka_proto.chain_format import decode_directory, decode_manifest, manifest_path
from tests.crash.explorer import EVENTS_KEPT
from tests.crash.verify import verify
from tests.crash.workload import History, Workload
from tests.support.store_folder import SHARD, CommittingFolder, RecordedStore
from tests.unit.broker.tools import running_state

SEGMENT_BYTES = 2_000
CHECKPOINT_BYTES = 2_000
CACHE_BYTES = 1 << 20


@dataclass(frozen=True)
class Recipe:
    """The parameters of one exploration.

    Attributes:
        turns: the steps of the workload.
        trouble: the share of the store's calls that fail, before or after they take effect.
        skip: of so many changes of the store, the broker is killed at one.
        second_kills: one in this number of recoveries is killed, too, anywhere.
    """

    seed: int
    turns: int = 8
    trouble: float = 0.0
    skip: int = 1
    second_kills: float = 0.1


class Explorer:
    """One exploration; local folders are made below `folder`."""

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        self._recipe = recipe
        self._folder = folder
        self._numbers = itertools.count()
        self._rng = random.Random(recipe.seed + 1)

    async def run(self) -> int:
        """Run the workload, check the state after each kill; returns the number of states.

        Raises:
            AssertionError: a promise was broken; the notes have the kill.
        """
        store = RecordedStore(seed=self._recipe.seed)
        history = await self._record(store)
        checked = 0
        for operations in range(0, len(store.operations) + 1, self._recipe.skip):
            try:
                checked += await self._kill(store, operations, history)
            except BaseException as e:
                last = [change.path for change in store.operations[:operations][-3:]]
                e.add_note(f"{self._recipe}, {operations} operations; the last: {last}")
                raise
        return checked

    def _open(self, store: RecordedStore) -> CommittingFolder:
        cache = self._folder / str(next(self._numbers))
        return CommittingFolder(store, cache, CACHE_BYTES)

    async def _record(self, store: RecordedStore) -> History:
        folder = self._open(store)
        store.trouble = self._recipe.trouble
        workload = Workload(random.Random(self._recipe.seed), folder)
        folder.uploads.start()
        async with running_state(
            folder, segment_bytes=SEGMENT_BYTES, checkpoint_bytes=CHECKPOINT_BYTES
        ) as state:
            state.journal.events_kept = EVENTS_KEPT
            saves = asyncio.create_task(self._save_tails(folder))
            await workload.run(state, self._recipe.turns)
            saves.cancel()
            await asyncio.gather(saves, return_exceptions=True)
        folder.uploads.close()
        folder.close()
        return workload.history

    async def _save_tails(self, folder: CommittingFolder) -> None:
        """Make objects of the beginning of the active segment, far too often."""
        while True:
            await asyncio.to_thread(folder.disk.chained.save_tail)
            await asyncio.sleep(0.002)

    async def _kill(self, store: RecordedStore, operations: int, history: History) -> int:
        left = RecordedStore(needed(store.left_after(operations)))
        recovered = await self._check(left, history, operations)
        if self._rng.random() >= self._recipe.second_kills:
            return 1
        at = self._rng.randrange(recovered + 1)
        await self._check(RecordedStore(needed(left.left_after(at))), history, operations)
        return 2

    async def _check(self, store: RecordedStore, history: History, operations: int) -> int:
        """Check a state; returns the changes of the store that the recovery has made."""
        folder = self._open(store)
        try:
            async with running_state(folder, segment_bytes=SEGMENT_BYTES) as state:
                recovered = len(store.operations)
                await verify(state, history, operations)
                return recovered
        finally:
            folder.close()


def needed(objects: dict[str, bytes]) -> dict[str, bytes]:
    """The objects that the manifest names, and the chain from where it begins."""
    data = objects.get(manifest_path(SHARD))
    if data is None:
        return {}
    manifest = decode_manifest(data, SHARD)
    kept = {manifest_path(SHARD)}
    if manifest.directory:
        kept.add(manifest.directory)
        kept.update(file.path for file in decode_directory(objects[manifest.directory]))
    for path in objects:
        if path.startswith("log/") and int(path[-12:]) >= manifest.chain_start:
            kept.add(path)
    return {path: objects[path] for path in kept}
