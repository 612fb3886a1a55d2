"""The broker program: the log, the ops on it, and the mesh server."""

from __future__ import annotations

import asyncio
import logging

from quafka_broker import status
from quafka_broker.config import BrokerConfig
from quafka_broker.data_folder import DataFolder
from quafka_broker.leases import LEASE_SECONDS
from quafka_broker.mesh_peers import MeshPeers, grants_of
from quafka_broker.metrics import BrokerMetrics
from quafka_broker.op_stats import BrokerStats
from quafka_broker.ops.table import handlers
from quafka_broker.org_removal import run_org_removal
from quafka_broker.partitions.errors import StorageError
from quafka_broker.snapshots.control_server import ControlServer
from quafka_broker.snapshots.housekeeping import run_housekeeping
from quafka_broker.snapshots.scheduler import SnapshotScheduler
from quafka_broker.sources.kafka.source import AdoptionError
from quafka_broker.state import BrokerState
from quafka_broker.topics.replay import BadRegistryError
from quafka_broker.wal.disk import RealDisk
from quafka_broker.wal.errors import DamagedLogError
from quafka_broker.wal.fsync import FsyncPolicy
from quafka_broker.wal.log import Log
from quafka_broker.wal.rewrite_task import RewritePolicy, RewriteTask
from quafka_mesh_ops.allow_list import AllowList
from quafka_mesh_ops.counters import handshake_families, mesh_families, mesh_page
from quafka_mesh_ops.identity import Identity
from quafka_mesh_ops.server import MeshServer
from quafka_mesh_ops.settings import RECORDS_AUTO, join_address, split_address
from quafka_telemetry.garbage import without_gc
from quafka_telemetry.operations import Operations
from quafka_telemetry.process_metrics import ProcessFigures, process_metrics
from quafka_telemetry.span_metrics import span_families
from quafka_telemetry.startup import StartupError
from quafka_telemetry.status_page import Section, StatusPage, text
from quafka_telemetry.tracing import Tracer

log = logging.getLogger("quafka.broker")

_DRAIN_SECONDS = 5.0
_RESERVE_SHARE = 20  # the reserve takes at most one part in this many of the disk


class Broker:
    """One broker on one data folder."""

    def __init__(self, config: BrokerConfig, tracer: Tracer) -> None:
        self._config = config
        self._tracer = tracer
        self._folder = DataFolder(config.data)
        self._identity: Identity | None = None
        self._state: BrokerState | None = None
        self._mesh: MeshServer | None = None
        self._peers: MeshPeers | None = None
        self._allowed: AllowList | None = None
        self._rewriting: RewriteTask | None = None
        self._control: ControlServer | None = None
        self._background: list[asyncio.Task[None]] = []
        self._address = self._operations_address = ("", 0)
        self._operations = Operations(self._problems)
        self._process = ProcessFigures("broker")
        self.metrics = process_metrics(self._process, self._operations)
        self.metrics.add(lambda: span_families(tracer))
        self._stats = BrokerStats(config.ops_slow_ms / 1000)
        self._figures: BrokerMetrics | None = None
        page = StatusPage("broker", self._problems, self._sections)
        self._operations.add("/statusz", page.page)
        self._busy_with = "recovering the log"

    async def start(self) -> None:
        """Hold the data folder, recover the log, listen.

        Raises:
            StartupError: the start failed; the message gives the reason in one sentence.
        """
        config = self._config
        self._folder.hold()
        held = asyncio.get_running_loop().time()
        # Started first, to distinguish a long recovery from a broker that hangs.
        self._operations_address = await self._operations.start(
            *split_address(config.ops_listen), config.page_files
        )
        identity = self._identity = Identity.load_or_create(
            config.node_key or config.data / "node.key"
        )
        entries = (*config.mesh_allow, *grants_of(config.mesh_brokers))
        allowed = self._allowed = AllowList(entries, config.mesh_allowed_file)
        state = self._state = BrokerState(config, self._new_log())
        peers = self._peers = MeshPeers(
            config.mesh_brokers, identity, self._tracer,
            datagram_size=config.mesh_datagram_size, batched=config.mesh_batched,
        )  # fmt: skip
        state.transactions.connect(peers)
        scheduler = SnapshotScheduler(state) if config.snapshot_interval_ms else None
        await self._recover(state, held)
        await peers.start()
        await self._listen(state, identity, allowed)
        await self._start_background(state, scheduler)
        self._busy_with = ""

    def _new_log(self) -> Log:
        config = self._config
        return Log(
            RealDisk(self._folder.wal),
            fsync_policy(config.wal_fsync),
            config.wal_segment_bytes,
            config.wal_checkpoint_bytes,
            min(config.wal_reserve_bytes, self._folder.size // _RESERVE_SHARE),
        )

    async def _recover(self, state: BrokerState, held: float) -> None:
        wal = state.log
        try:
            with without_gc():
                await asyncio.to_thread(wal.open, state.producers)
            wal.on_commit = state.parked_fetches.wake
            wal.start()
            await state.replay_registry()
            await state.replay_security()
            await state.adopt_kafka()
            await state.start_groups()
            if wal.began_epoch:
                await self._outlive_leases(held)
        except (DamagedLogError, StorageError, OSError, BadRegistryError) as e:
            raise StartupError(f"cannot open the log in {self._folder.wal}: {e}") from e
        except AdoptionError as e:
            raise StartupError(f"cannot serve kafka.log.dirs: {e}") from e

    async def _listen(self, state: BrokerState, identity: Identity, allowed: AllowList) -> None:
        config = self._config
        mesh = self._mesh = MeshServer(
            identity,
            allowed,
            handlers(state, self._stats),
            self._tracer,
            grants=allowed.grant,
            datagram_size=config.mesh_datagram_size,
            batched=config.mesh_batched,
            bulk=config.mesh_bulk == "tls",
        )
        try:
            self._address = await mesh.start(*split_address(config.mesh_listen))
        except OSError as e:
            reason = e.strerror or e
            ports = "UDP and TCP" if config.mesh_bulk == "tls" else "UDP"
            raise StartupError(f"cannot listen on {config.mesh_listen} ({ports}): {reason}") from e
        self._operations.add("/mesh", mesh_page(mesh.counters))
        self._add_metrics(state, mesh)
        if config.mesh_records == RECORDS_AUTO:
            self._start_places(state, allowed)

        state.security.watchers.grants = allowed.grant

        def enforce() -> None:
            mesh.enforce()
            state.security.watchers.wake()
            state.places.enforce()

        allowed.watch(enforce)

    def _start_places(self, state: BrokerState, allowed: AllowList) -> None:
        try:
            state.places.start(self._config.data, allowed.grant)
        except OSError as e:  # then records go by value
            log.warning("no records by place: %s", e)

    async def _start_background(
        self, state: BrokerState, scheduler: SnapshotScheduler | None
    ) -> None:
        config = self._config
        policy = RewritePolicy(config.wal_rewrite, config.wal_rewrite_bytes_per_second)
        self._rewriting = state.log.rewrite_task(policy, lambda: state.journal.deletions)
        state.compaction.start(self._rewriting)
        self._background = [
            asyncio.create_task(state.retention().run()),
            asyncio.create_task(self._rewriting.run()),
            asyncio.create_task(state.compaction.run()),
            asyncio.create_task(run_housekeeping(state, config.data)),
            asyncio.create_task(state.transactions.run()),
            asyncio.create_task(state.transactions.run_branches()),
            asyncio.create_task(state.security.run()),
            asyncio.create_task(state.stored_bytes.run()),
            asyncio.create_task(run_org_removal(state)),
        ]
        if state.kafka is not None:
            self._background.append(asyncio.create_task(state.kafka.run()))
        self._control = ControlServer(state, config.data)
        try:
            await self._control.start()
        except OSError as e:
            raise StartupError(f"cannot listen in {config.data}: {e.strerror or e}") from e
        if scheduler is not None:
            self._background.append(asyncio.create_task(scheduler.run()))

    async def _outlive_leases(self, held: float) -> None:
        """Wait until no gateway serves from memory records of the log before this start.

        The last run has given no lease since this run `held` the data folder (loop time).
        """
        self._busy_with = "waiting for the leases of the last run to end"
        await asyncio.sleep(held + LEASE_SECONDS - asyncio.get_running_loop().time())

    def _add_metrics(self, state: BrokerState, mesh: MeshServer) -> None:
        figures = self._figures = BrokerMetrics(state, self._stats, self._config.data)
        self.metrics.before(figures.read)
        self.metrics.add(figures.collect)
        self.metrics.add(lambda: mesh_families(mesh.counters))
        self.metrics.add(lambda: handshake_families(mesh.first_packets))
        self.metrics.before_detail(figures.read_lags)
        self.metrics.before_detail(figures.compaction.read)
        self.metrics.add(figures.detail, detail=True)

    async def _sections(self) -> list[Section]:
        """The sections of /statusz, which is served from the beginning of the start."""
        await self.metrics.refresh()
        await self.metrics.refresh(detail=True)
        found: list[Section] = [
            self._process.facts(
                ("data folder", text(self._config.data)),
                ("mesh", text(join_address(*self._address))),
                ("node id", text(self._identity.node_id if self._identity else "")),
            )
        ]
        if self._figures is not None and self._mesh is not None:
            figures, url = self._figures, self._config.ops_trace_url
            peers = self._mesh.counters
            found += status.sections(figures.state, self._stats, figures, peers, url)
        return found

    async def close(self) -> None:
        """Answer the ops under way, sync the log, and release the data folder."""
        self._busy_with = "draining"
        if self._control is not None:
            await self._control.close()
        if self._state is not None:
            self._state.parked_fetches.drain()
            self._state.leases.drain()
            self._state.security.watchers.drain()
            self._state.groups.drain()
        if self._allowed is not None:
            await self._allowed.close()
        if self._mesh is not None:
            await self._mesh.close(_DRAIN_SECONDS)
        if self._state is not None:
            self._state.places.close()
        for task in self._background:
            task.cancel()
        if self._rewriting is not None:
            await self._rewriting.close()
        if self._state is not None:
            await self._state.close()
        if self._peers is not None:
            await self._peers.close()
        await self._operations.close()
        self._folder.release()

    def _problems(self) -> dict[str, str]:
        problems = {"broker": self._busy_with} if self._busy_with else {}
        if self._state is not None:
            health = self._state.log.health()
            problem = health.failed or health.refusing
            if problem is not None:
                problems["log"] = problem
        return problems

    def describe(self) -> dict[str, str]:
        """The addresses and the node id, for the operator."""
        return {
            "mesh": join_address(*self._address),
            "operations": join_address(*self._operations_address),
            "node_id": self._identity.node_id if self._identity else "",
        }


def fsync_policy(setting: str) -> FsyncPolicy:
    """The policy that `wal.fsync` names: commit, never or interval:<ms>."""
    if setting == "commit":
        return FsyncPolicy()
    if setting == "never":
        return FsyncPolicy(0.0)
    return FsyncPolicy(int(setting.removeprefix("interval:")) / 1000)
