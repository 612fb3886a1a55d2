"""Takes over, opens and gives up a shard's log in an object store.

A later owner stops this broker: nothing is acknowledged any more, whatever this process does. So a
`StoredLog` needs no lock, and its folder may be lost at any time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from quafka_broker.chain.attempts import Attempts
from quafka_broker.chain.chain import Chain
from quafka_broker.chain.collect import Collected, Collector, collect_regularly
from quafka_broker.chain.errors import FencedError
from quafka_broker.chain.lease import keep_lease
from quafka_broker.chain.materialise import materialise, probe
from quafka_broker.chain.prefetch import PrefetchedStore
from quafka_broker.chain.store_disk import StoreDisk
from quafka_broker.chain.takeover import Seen, take_over
from quafka_broker.chain.uploads import Uploads
from quafka_broker.config.settings import LogSettings
from quafka_broker.partitions.errors import StorageError
from quafka_broker.snapshots.stored_log_snapshot import PinnedObjects
from quafka_broker.snapshots.views import Views
from quafka_broker.state import BrokerState
from quafka_broker.wal.chain_durability import ChainLink, ChainPolicy
from quafka_broker.wal.fsync import FsyncPolicy
from quafka_broker.wal.log import Log
from quafka_loop import clock
from quafka_objects.address import open_store
from quafka_objects.asynchronous import AsyncObjectStore
from quafka_objects.cluster import create_cluster
from quafka_objects.errors import TransientStoreError
from quafka_objects.meter import MeteredStore, StoreMeter
from quafka_objects.race import verify_store
from quafka_objects.store import ObjectStore
from quafka_proto.chain_format import Owner, manifest_path
from quafka_proto.cluster_format import ClusterFile
from quafka_proto.errors import Malformed
from quafka_telemetry import semconv
from quafka_telemetry.startup import StartupError
from quafka_telemetry.tracing import UNTRACED, Steps

log = logging.getLogger("quafka.broker.store")

_ATTEMPT_SECONDS = 20.0
_CALLS_AT_ONCE = 128
"""Threads for all shards here, each with up to 16 objects under way: no shard waits for another."""
_LAST_CALLS_S = 3.0


class LogStore(NamedTuple):
    """The object store of a cluster, for threads and for the event loop."""

    blocking: ObjectStore
    calls: AsyncObjectStore

    async def close(self) -> None:
        """Wait for the calls under way, and end the threads."""
        await self.calls.close()


def open_log_store(
    url: str, meter: StoreMeter, options: Mapping[str, str] | None = None
) -> LogStore:
    """Open the store at a URL, without a request. Blocks.

    Each request is sent once: callers repeat it themselves, and `meter` counts attempts.

    Raises:
        ObjectStoreError: the URL is wrong.
    """
    store = MeteredStore(open_store(url, options, _ATTEMPT_SECONDS), meter)
    return LogStore(store, AsyncObjectStore(store, _CALLS_AT_ONCE))


async def join_cluster(store: LogStore, new: ClusterFile) -> ClusterFile:
    """The cluster of a store; `new` if there was none. A store without a log is verified first.

    Waits for the end of an outage: only what another attempt cannot mend is raised.

    Raises:
        UnsafeStoreError: the store must not hold a log.
        OSError: the store cannot be used.
        Malformed: the description of the cluster is bad.
    """
    attempts = Attempts(f"opening {store.blocking.where}")
    while True:
        try:
            return await asyncio.to_thread(_join_cluster, store.blocking, new)
        except TransientStoreError as e:
            attempts.trouble = str(e)
            await attempts.pause()


def _join_cluster(store: ObjectStore, new: ClusterFile) -> ClusterFile:
    if not store.exists(manifest_path(0)):
        proof = verify_store(store)
        log.info(
            "%s keeps its conditions: %d creations and %d swaps raced in %.1f s, one took %.0f ms "
            "(median), at most %.0f ms",
            store.where, proof.creations, proof.swaps, proof.seconds, proof.median * 1e3,
            proof.slowest * 1e3,
        )  # fmt: skip
    return create_cluster(store, new)


class StoredLog:
    """A log that this broker has taken over.

    `log.open`, then `begin`; at the end `prepare_to_close`, `log.close`, `release`, then `close`.
    """

    def __init__(
        self,
        chain: Chain,
        lease: asyncio.Task[None],
        disk: StoreDisk,
        store: LogStore,
        prefetched: PrefetchedStore,
        config: LogSettings,
    ) -> None:
        """See `take`."""
        self.chain = chain
        self.disk = disk
        self._store = store
        self._prefetched = prefetched
        self._tasks: list[asyncio.Task[None]] = []
        self._view_interval_s = config.store_view_interval_ms / 1000
        self._grace_s = config.store_grace_ms / 1000
        self._collector: Collector | None = None
        self._views: Views | None = None
        self._lease = lease
        self._uploads = Uploads(disk)
        self.on_lost: Callable[[str], None] = lambda _: None
        """Called with the reason when another broker has taken the shard over."""
        policy = ChainPolicy(
            config.wal_object_linger_ms / 1000,
            config.wal_object_bytes,
            config.store_timeout_ms / 1000,
        )
        self.log = Log(
            disk,
            FsyncPolicy(),
            config.wal_segment_bytes,
            config.wal_checkpoint_bytes,
            chain=ChainLink(chain, policy),
        )
        chain.on_fenced = self._fenced
        if chain.failure is not None:  # meanwhile
            self._fenced(chain.failure)

    @classmethod
    async def take(
        cls,
        store: LogStore,
        shard: int,
        owner: Owner,
        seen: Seen,
        config: LogSettings,
        folder: Path,
        steps: Steps = UNTRACED,
    ) -> StoredLog:
        """Become the only writer of a shard, and make its local folder below `folder`.

        Args:
            seen: the facts of the decision.
            steps: traces the steps.

        Raises:
            FencedError: another broker was faster.
            StoreUnavailableError: the store does not answer.
            StartupError: the folder cannot be used, and the shard was left alone.
            OSError: the folder cannot be used any more.
            DamagedLogError, Malformed: the log in the store is damaged.
        """
        try:
            with steps.begin(semconv.SHARD_PROBE):
                await asyncio.to_thread(probe, folder)
        except OSError as e:
            raise StartupError(f"the folder {folder} cannot be used: {e.strerror or e}") from e
        prefetched = PrefetchedStore(store.blocking)
        if seen.manifest is not None and seen.manifest.manifest.directory:
            prefetched.fetch_files(seen.manifest.manifest.directory)
        try:
            taken = await take_over(
                store.calls, shard, owner, clock.time,
                seen=seen, read=partial(prefetched.headers, store.calls, shard), steps=steps,
            )  # fmt: skip
        except BaseException:
            prefetched.forget()
            raise
        chain = taken.chain
        lease = asyncio.create_task(keep_lease(chain, clock.time))
        headers = [header for _, header in taken.objects]
        try:
            with steps.begin(semconv.SHARD_MATERIALISE) as span:
                disk = await asyncio.to_thread(
                    materialise, prefetched, chain, chain.manifest, headers, folder,
                    config.store_cache_bytes,
                )  # fmt: skip
                objects, size = prefetched.fetched
                span.set({semconv.STORE_OBJECTS: objects, semconv.STORE_BYTES: size})
        except BaseException:
            prefetched.forget()
            lease.cancel()
            await chain.close()
            raise
        log.info(
            "shard %d: epoch %d, %d objects of the chain read", shard, chain.epoch, len(headers)
        )
        return cls(chain, lease, disk, store, prefetched, config)

    def begin(self, state: BrokerState) -> None:
        """Begin background work on the open log: uploads, views, deletion of unneeded objects."""
        self._prefetched.forget()
        self.disk.reader.serve()
        self._uploads.start()
        pins = PinnedObjects(self._store.blocking)
        views = self._views = Views(
            state,
            self.chain,
            self._store.blocking,
            self._view_interval_s,
            pins.read,
            grace_s=self._grace_s,
        )
        collector = self._collector = Collector(
            self._store.calls,
            self.chain.shard,
            self.chain.epoch,
            self.disk.files.kept,
            grace_s=self._grace_s,
            pinned=lambda: asyncio.to_thread(pins.read),
        )
        self._tasks = [
            asyncio.create_task(views.run()),
            asyncio.create_task(collect_regularly(collector)),
        ]

    @property
    def unneeded(self) -> Collected:
        """Objects that are deleted after the grace period."""
        return Collected() if self._collector is None else self._collector.unneeded

    async def prepare_hand_over(self, seconds: float) -> None:
        """Save what the next owner would have to read and replay; appends continue meanwhile.

        It is optional: it takes at most `seconds`, and may fail.
        """
        try:
            async with asyncio.timeout(seconds):
                await asyncio.gather(
                    self.log.checkpoint(), asyncio.to_thread(self._uploads.flush, seconds)
                )
        except OSError as e:  # TimeoutError, too
            log.info("shard %d is handed over as it is: %s", self.chain.shard, e or "no answer")

    async def write_last_view(self) -> None:
        """Nobody takes the shard over now: readers and snapshots see its end. A few seconds."""
        if self._views is None or self.chain.failure is not None:
            return
        try:
            async with asyncio.timeout(_LAST_CALLS_S):
                await self._views.write_news()
        except (OSError, FencedError, StorageError, Malformed) as e:  # TimeoutError, too
            log.info("shard %d has no last view: %s", self.chain.shard, e or "no answer")

    def prepare_to_close(self) -> None:
        """Prepare to stop: an outage of the store delays this by a few seconds at most."""
        for task in self._tasks:
            task.cancel()
        self.disk.patience.end_within(_LAST_CALLS_S)

    async def release(self) -> None:
        """Give the shard up, so that another broker may take it over at once."""
        try:
            async with asyncio.timeout(_LAST_CALLS_S):
                await self.chain.release()
        except (FencedError, TimeoutError) as e:
            log.info("the shard is not given up: %s", e or "the store does not answer")
            await self.chain.close()
        self._lease.cancel()

    async def close(self) -> None:
        """End the threads and remove the folder, after `release`."""
        self._prefetched.forget()
        await asyncio.to_thread(self._uploads.close)
        await asyncio.to_thread(self.disk.close)

    def _fenced(self, reason: str) -> None:
        self.log.give_up(f"another broker has taken the log over: {reason}")
        self.on_lost(reason)
