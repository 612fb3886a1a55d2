"""One shard: a log, the state derived from it, and its background tasks.

A broker with a local folder has one shard, shard 0.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

from quafka_broker.config.settings import BrokerConfig
from quafka_broker.leases import LEASE_SECONDS
from quafka_broker.ops.table import handlers
from quafka_broker.partitions.errors import StorageError
from quafka_broker.shard.org_removal import run_org_removal
from quafka_broker.snapshots.control_server import ControlServer
from quafka_broker.snapshots.housekeeping import run_housekeeping
from quafka_broker.snapshots.scheduler import SnapshotScheduler
from quafka_broker.sources.kafka.errors import AdoptionError
from quafka_broker.state import BrokerState
from quafka_broker.status.metrics import BrokerMetrics
from quafka_broker.status.op_stats import BrokerStats
from quafka_broker.topics.replay import BadRegistryError
from quafka_broker.transactions.peers import Peers
from quafka_broker.wal.errors import DamagedLogError
from quafka_broker.wal.log import Log
from quafka_broker.wal.rewrite_task import RewritePolicy, RewriteTask
from quafka_loop.garbage import without_gc
from quafka_mesh_ops.allow_list import AllowList
from quafka_mesh_ops.handlers import Handler
from quafka_mesh_ops.ops.base import OpCode
from quafka_mesh_ops.settings import RECORDS_AUTO
from quafka_telemetry.startup import StartupError

log = logging.getLogger("quafka.broker")


class Shard:
    """One shard of this broker: `open`, then `start`, then `drain`, then `close`.

    Attributes:
        number: the shard's number in its cluster.
        state: the log and the state derived from it.
        busy_with: the work of a shard that does not serve yet, or no longer; otherwise empty.
    """

    def __init__(
        self,
        number: int,
        config: BrokerConfig,
        folder: Path,
        wal: Log,
        peers: Peers,
        stats: BrokerStats,
        *,
        cluster_id: str = "",
    ) -> None:
        """`folder`: held by this process alone; has the sockets of snapshots and descriptors.
        `cluster_id`: the name of a new log; empty: a random one."""
        self.number = number
        self._config = config
        self._folder = folder
        self.state = BrokerState(config, wal, peers=peers, cluster_id=cluster_id)
        self._stats = stats
        self._scheduler = SnapshotScheduler(self.state) if config.snapshot_interval_ms else None
        self._rewriting: RewriteTask | None = None
        self._control: ControlServer | None = None
        self._background: list[asyncio.Task[None]] = []
        self.figures = BrokerMetrics(self.state, stats, folder)
        self.busy_with = "recovering the log"

    @property
    def handlers(self) -> Mapping[OpCode, Handler]:
        """The handlers of the ops on the shard."""
        return handlers(self.state, self._stats)

    async def open(self, held: float | None = None) -> None:
        """Recover the log. This process alone has held its folder since `held` (loop time).

        None: every record that was ever read is in the log, whatever happened to its last owner.

        Raises:
            StartupError: the log cannot be opened; the message gives the reason in one sentence.
        """
        state, wal = self.state, self.state.log
        try:
            with without_gc():
                await asyncio.to_thread(wal.open, state.producers, state.parked_fetches.wake)
            wal.start()
            await state.replay_registry()
            await state.replay_security()
            await state.adopt_kafka()
            await state.start_groups()
            if wal.began_epoch and held is not None:
                await self._outlive_leases(held)
        except (DamagedLogError, StorageError, OSError, BadRegistryError) as e:
            raise StartupError(f"cannot open the log in {self._folder}: {e}") from e
        except AdoptionError as e:
            raise StartupError(f"cannot serve kafka.log.dirs: {e}") from e

    async def _outlive_leases(self, held: float) -> None:
        """Wait until no gateway serves records of the log before this start from memory.

        The previous run has granted no lease since this run `held` the folder.
        """
        self.busy_with = "waiting for the leases of the previous run to expire"
        await asyncio.sleep(held + LEASE_SECONDS - asyncio.get_running_loop().time())

    async def start(self, allowed: AllowList) -> None:
        """Begin the background tasks. The shard serves from now on.

        Raises:
            StartupError: the socket in the folder cannot be made.
        """
        state, config = self.state, self._config
        if config.mesh_records == RECORDS_AUTO:
            try:
                state.places.start(self._folder, allowed.grant)
            except OSError as e:  # then records are sent by value
                log.warning("records cannot be read by place: %s", e)
        state.security.watchers.grants = allowed.grant
        policy = RewritePolicy(config.wal_rewrite, config.wal_rewrite_bytes_per_second)
        self._rewriting = state.log.rewrite_task(policy, lambda: state.journal.deletions)
        state.compaction.start(self._rewriting)
        self._background = [
            asyncio.create_task(state.retention().run()),
            asyncio.create_task(self._rewriting.run()),
            asyncio.create_task(state.compaction.run()),
            asyncio.create_task(run_housekeeping(state, self._folder)),
            asyncio.create_task(state.transactions.run()),
            asyncio.create_task(state.transactions.run_branches()),
            asyncio.create_task(state.security.run()),
            asyncio.create_task(state.shares.run()),
            asyncio.create_task(state.stored_bytes.run()),
            asyncio.create_task(run_org_removal(state)),
        ]
        if state.kafka is not None:
            self._background.append(asyncio.create_task(state.kafka.run()))
        self._control = ControlServer(state, self._folder)
        try:
            await self._control.start()
        except OSError as e:
            raise StartupError(f"cannot listen in {self._folder}: {e.strerror or e}") from e
        if self._scheduler is not None:
            self._background.append(asyncio.create_task(self._scheduler.run()))
        self.busy_with = ""

    def enforce(self) -> None:
        """Enforce a changed allow-list."""
        self.state.security.watchers.wake()
        self.state.places.enforce()

    async def drain(self) -> None:
        """Answer parked ops, and park no more. New ops are still answered."""
        self.busy_with = "draining"
        if self._control is not None:
            await self._control.close()
        self.state.parked_fetches.drain()
        self.state.leases.drain()
        self.state.security.watchers.drain()
        self.state.groups.drain()

    async def close(self) -> None:
        """Sync and close the log, once no op is running."""
        self.state.places.close()
        for task in self._background:
            task.cancel()
        if self._rewriting is not None:
            await self._rewriting.close()
        await self.state.close()

    def problem(self) -> str | None:
        """The problem that stops the log, or None."""
        health = self.state.log.health()
        return health.failed or health.refusing
