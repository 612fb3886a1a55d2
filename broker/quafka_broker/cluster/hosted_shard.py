"""A shard of an object store at this broker, from its takeover to its release."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

from quafka_broker.chain.errors import FencedError
from quafka_broker.chain.metrics import LocalFigures
from quafka_broker.chain.takeover import Seen
from quafka_broker.config.settings import BrokerConfig
from quafka_broker.shard.shard import Shard
from quafka_broker.shard.stored_log import LogStore, StoredLog
from quafka_broker.status.op_stats import BrokerStats
from quafka_broker.transactions.peers import Peers
from quafka_loop import file_modes
from quafka_mesh_ops.allow_list import AllowList
from quafka_mesh_ops.server import MeshServer
from quafka_proto.chain_format import Owner
from quafka_proto.cluster_format import ClusterFile
from quafka_telemetry import semconv
from quafka_telemetry.tracing import UNTRACED, Steps

_LEAST_CACHE = 64 << 20
_DRAIN_SECONDS = 5.0
_PREPARE_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class HostResources:
    """The resources that all shards of a broker share."""

    store: LogStore
    cluster: ClusterFile
    owner: Owner
    config: BrokerConfig
    mesh: MeshServer
    allowed: AllowList
    stats: BrokerStats

    def config_of(self, shard: int) -> BrokerConfig:
        """The settings of one shard: its part of the cache, the cluster's name, its snapshots."""
        config, shards = self.config, self.cluster.shards
        dest = config.snapshot_dest
        return replace(
            config,
            store_cache_bytes=max(_LEAST_CACHE, config.store_cache_bytes // shards),
            cluster_name=config.cluster_name or self.cluster.cluster_id,
            snapshot_dest=f"{dest.rstrip('/')}/shard-{shard}" if dest and shards > 1 else dest,
        )

    def folder_of(self, shard: int) -> Path:
        """The local folder of a shard's sockets: for shard 0, the broker's."""
        folder = self.config.folder
        if shard:
            folder = folder / "shards" / str(shard)
            file_modes.make_folders(folder)
        return folder


class HostedShard:
    """One shard, served by this broker."""

    def __init__(self, hosting: HostResources, shard: Shard, stored: StoredLog) -> None:
        """See `open`."""
        self._hosting = hosting
        self.shard = shard
        self.stored = stored
        self._ending: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls, hosting: HostResources, number: int, seen: Seen, peers: Peers, steps: Steps
    ) -> HostedShard:
        """Take a shard over, recover its log, and serve it.

        Args:
            seen: the facts of the decision.
            steps: traces the steps.

        Raises:
            FencedError: another broker was faster.
            OSError: the store does not answer, or the local folder cannot be used.
            DamagedLogError, Malformed, StartupError: the log in the store cannot be opened.
        """
        config = hosting.config_of(number)
        folder = hosting.folder_of(number)
        stored = await StoredLog.take(
            hosting.store, number, hosting.owner, seen, config, hosting.config.folder / "wal",
            steps,
        )  # fmt: skip
        # The first shard's log has the name of the cluster.
        name = hosting.cluster.cluster_id if number == 0 else ""
        shard = Shard(number, config, folder, stored.log, peers, hosting.stats, cluster_id=name)
        hosted = cls(hosting, shard, stored)
        try:
            with steps.begin(semconv.SHARD_REPLAY) as span:
                await shard.open()
                span.set({semconv.REPLAYED_BYTES: stored.log.figures().unsaved_bytes})
            with steps.begin(semconv.SHARD_START):
                stored.begin(shard.state)
                await shard.start(hosting.allowed)
        except BaseException as e:
            lost = stored.chain.failure
            await hosted.close()
            if lost is not None and isinstance(e, Exception):
                raise FencedError(lost) from e
            raise
        hosting.mesh.shards.add(number, shard.handlers, steps.parent)
        return hosted

    @property
    def broken(self) -> str | None:
        """Why the log takes no more writes although the shard is here; None: it does take them."""
        return None if self.stored.chain.failure else self.shard.state.log.health().failed

    def local_figures(self) -> LocalFigures:
        """The use of the shard's local folder."""
        cache = self._hosting.config_of(self.shard.number).store_cache_bytes
        return LocalFigures(self.stored.disk.figures(), cache, self.stored.unneeded)

    async def prepare_hand_over(self) -> None:
        """Shorten the takeover by another broker. The shard serves meanwhile."""
        await self.stored.prepare_hand_over(_PREPARE_SECONDS)

    async def end(self, steps: Steps = UNTRACED, *, last_view: bool = False) -> None:
        """Answer the ops under way, close the log and give the shard up. Safe to repeat.

        `close` ends the remaining parts of the shard. `last_view`: no broker is there to take it
        over.
        """
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._end(steps, last_view))
        await asyncio.shield(self._ending)

    async def _end(self, steps: Steps, last_view: bool) -> None:
        hosting = self._hosting
        seconds = _DRAIN_SECONDS if self.stored.chain.failure is None else 0.0
        with steps.begin(semconv.SHARD_DRAIN):
            await self.shard.drain()
            await hosting.mesh.drain_shard(self.shard.number, seconds)
        with steps.begin(semconv.SHARD_CLOSE):
            if last_view:
                await self.stored.write_last_view()
            self.stored.prepare_to_close()
            await self.shard.close()
        with steps.begin(semconv.SHARD_RELEASE):
            await self.stored.release()

    async def close(self) -> None:
        """End the remaining parts of the shard, and remove its folder."""
        await self.end()
        await self.stored.close()
