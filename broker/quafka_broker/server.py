"""The broker program: the log, the ops on it, and the mesh in front."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import shutil
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from quafka_broker import status
from quafka_broker.config import BrokerConfig
from quafka_broker.journals.internal_topics import INTERNAL_ORG
from quafka_broker.leases import LEASE_SECONDS
from quafka_broker.metrics import BrokerMetrics
from quafka_broker.op_stats import BrokerStats, OpStats
from quafka_broker.ops import (
    configs,
    delete_records,
    describe_producers,
    epoch_ends,
    fetch,
    group_admin,
    group_lag,
    groups,
    leases,
    list_offsets,
    log_dirs,
    offsets,
    partitions,
    probe,
    produce,
    producer_ids,
    snapshots,
    topics,
)
from quafka_broker.partitions.errors import StorageError
from quafka_broker.snapshots.control_server import ControlServer
from quafka_broker.snapshots.housekeeping import run_housekeeping
from quafka_broker.snapshots.scheduler import SnapshotScheduler
from quafka_broker.state import BrokerState
from quafka_broker.topics.replay import BadRegistryError
from quafka_broker.wal.disk import RealDisk, sync_folder
from quafka_broker.wal.errors import DamagedLogError
from quafka_broker.wal.fsync import FsyncPolicy
from quafka_broker.wal.log import Log
from quafka_broker.wal.rewrite_task import RewritePolicy, RewriteTask
from quafka_mesh_ops.allow_list import AllowList
from quafka_mesh_ops.counters import handshake_families, mesh_families, mesh_page
from quafka_mesh_ops.errors import OpFailedError
from quafka_mesh_ops.grants import LAST_ORG
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.identity import Identity
from quafka_mesh_ops.ops.admin import (
    AlterBrokerConfigs,
    AlterTopicConfigs,
    CreatePartitions,
    DescribeBroker,
    DescribeLogDir,
    DescribeProducersOps,
    DescribeTopicConfigs,
)
from quafka_mesh_ops.ops.base import OpCode, WireStruct
from quafka_mesh_ops.ops.group_offsets import (
    CommitOffsets,
    CommittedOffsets,
    DeleteOffsets,
    ForgetTopic,
)
from quafka_mesh_ops.ops.groups import (
    DeleteGroups,
    DescribeGroups,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    SyncGroup,
)
from quafka_mesh_ops.ops.lag import GroupLag, LagOfOffsets
from quafka_mesh_ops.ops.leases import HoldLease
from quafka_mesh_ops.ops.offsets import EpochEndOps, ListOffsetsOps
from quafka_mesh_ops.ops.probe import Probe
from quafka_mesh_ops.ops.records import DeleteRecordsOps, FetchOps, InitProducerId, ProduceOps
from quafka_mesh_ops.ops.snapshots import (
    PinOrg,
    PinSnapshot,
    ReadOrgPinned,
    ReadPinned,
    UnpinOrg,
    UnpinSnapshot,
)
from quafka_mesh_ops.ops.topics import CreateTopic, DeleteTopic, DescribeTopics
from quafka_mesh_ops.server import MeshServer
from quafka_mesh_ops.settings import join_address, split_address
from quafka_proto.errors import ErrorCode
from quafka_telemetry.garbage import without_gc
from quafka_telemetry.operations import Operations
from quafka_telemetry.process_metrics import ProcessFigures, process_metrics
from quafka_telemetry.span_metrics import span_families
from quafka_telemetry.startup import StartupError
from quafka_telemetry.status_page import Section, StatusPage, text
from quafka_telemetry.tracing import Tracer

log = logging.getLogger("quafka.broker")

_DRAIN_SECONDS = 5.0
_RESERVE_SHARE = 20  # of a small disk, no more than one part in so many is kept free
_UNKNOWN_ERROR = ErrorCode.UNKNOWN_SERVER_ERROR

Handler = Callable[[BrokerState, OpContext, Any], Awaitable[WireStruct]]

OPS: dict[OpCode, Handler] = dict(
    (
        ProduceOps.handled_by(produce.handle),
        FetchOps.handled_by(fetch.handle),
        ListOffsetsOps.handled_by(list_offsets.handle),
        DeleteTopic.handled_by(topics.delete),
        DescribeTopics.handled_by(topics.describe),
        CreateTopic.handled_by(topics.create),
        InitProducerId.handled_by(producer_ids.handle),
        DeleteRecordsOps.handled_by(delete_records.handle),
        EpochEndOps.handled_by(epoch_ends.handle),
        HoldLease.handled_by(leases.handle),
        JoinGroup.handled_by(groups.join),
        SyncGroup.handled_by(groups.sync),
        Heartbeat.handled_by(groups.heartbeat),
        LeaveGroup.handled_by(groups.leave),
        CommitOffsets.handled_by(offsets.commit),
        CommittedOffsets.handled_by(offsets.committed),
        DeleteOffsets.handled_by(group_admin.delete_offsets),
        ListGroups.handled_by(group_admin.list_groups),
        DescribeGroups.handled_by(group_admin.describe),
        DeleteGroups.handled_by(group_admin.delete),
        Probe.handled_by(probe.handle),
        CreatePartitions.handled_by(partitions.create),
        DescribeTopicConfigs.handled_by(configs.describe),
        AlterTopicConfigs.handled_by(configs.alter),
        DescribeBroker.handled_by(configs.describe_broker),
        AlterBrokerConfigs.handled_by(configs.alter_broker),
        DescribeLogDir.handled_by(log_dirs.describe),
        DescribeProducersOps.handled_by(describe_producers.handle),
        ForgetTopic.handled_by(offsets.forget),
        GroupLag.handled_by(group_lag.handle),
        LagOfOffsets.handled_by(group_lag.of_offsets),
        PinSnapshot.handled_by(snapshots.pin),
        ReadPinned.handled_by(snapshots.read),
        UnpinSnapshot.handled_by(snapshots.unpin),
        PinOrg.handled_by(snapshots.pin_org),
        ReadOrgPinned.handled_by(snapshots.read_org_pinned),
        UnpinOrg.handled_by(snapshots.unpin_org),
    )
)
"""What an op code is answered by."""


class Broker:
    """Keeps the log. One process holds a data folder at a time."""

    def __init__(self, config: BrokerConfig, tracer: Tracer) -> None:
        self._config = config
        self._tracer = tracer
        self._folder = DataFolder(config.data)
        self._identity: Identity | None = None
        self._state: BrokerState | None = None
        self._mesh: MeshServer | None = None
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
            StartupError: any of it cannot be done; one sentence says why.
        """
        config = self._config
        self._folder.hold()
        held = asyncio.get_running_loop().time()
        # First of all, so that a long recovery can be told from a broker that hangs.
        self._operations_address = await self._operations.start(*split_address(config.ops_listen))
        self._identity = Identity.load_or_create(config.node_key or config.data / "node.key")
        wal = Log(
            RealDisk(self._folder.wal),
            fsync_policy(config.wal_fsync),
            config.wal_segment_bytes,
            config.wal_checkpoint_bytes,
            min(config.wal_reserve_bytes, self._folder.size // _RESERVE_SHARE),
        )
        allowed = self._allowed = AllowList(config.mesh_allow, config.mesh_allowed_file)
        state = self._state = BrokerState(config, wal)
        scheduler = SnapshotScheduler(state) if config.snapshot_interval_ms else None
        try:
            with without_gc():
                await asyncio.to_thread(wal.open, state.producers)
            wal.on_commit = state.parked_fetches.wake
            wal.start()
            await state.replay_registry()
            await state.start_groups()
            if wal.began_epoch:
                await self._outlive_leases(held)
        except (DamagedLogError, StorageError, OSError, BadRegistryError) as e:
            raise StartupError(f"cannot open the log in {self._folder.wal}: {e}") from e
        handlers = {
            code: partial(_count, handler, state, self._stats.of(code))
            for code, handler in OPS.items()
        }
        self._mesh = MeshServer(
            self._identity,
            allowed,
            handlers,
            self._tracer,
            grants=allowed.grant,
            datagram_size=config.mesh_datagram_size,
            batched=config.mesh_batched,
        )
        try:
            self._address = await self._mesh.start(*split_address(config.mesh_listen))
        except OSError as e:
            reason = e.strerror or e
            raise StartupError(f"cannot listen on {config.mesh_listen} (UDP): {reason}") from e
        self._operations.add("/mesh", mesh_page(self._mesh.counters))
        self._add_metrics(state, self._mesh)
        allowed.watch(self._mesh.enforce)
        policy = RewritePolicy(config.wal_rewrite, config.wal_rewrite_bytes_per_second)
        self._rewriting = wal.rewrite_task(policy, lambda: state.journal.deletions)
        self._background = [
            asyncio.create_task(state.retention().run()),
            asyncio.create_task(self._rewriting.run()),
            asyncio.create_task(run_housekeeping(state, config.data)),
        ]
        self._control = ControlServer(state, config.data)
        try:
            await self._control.start()
        except OSError as e:
            raise StartupError(f"cannot listen in {config.data}: {e.strerror or e}") from e
        if scheduler is not None:
            self._background.append(asyncio.create_task(scheduler.run()))
        self._busy_with = ""

    async def _outlive_leases(self, held: float) -> None:
        """Wait until no gateway serves from memory what the log had before this start.

        Whoever had the data folder has given no lease since it was `held` (loop time).
        """
        self._busy_with = "waiting for the leases that the last run has given"
        await asyncio.sleep(held + LEASE_SECONDS - asyncio.get_running_loop().time())

    def _add_metrics(self, state: BrokerState, mesh: MeshServer) -> None:
        figures = self._figures = BrokerMetrics(state, self._stats, self._config.data)
        self.metrics.before(figures.read)
        self.metrics.add(figures.collect)
        self.metrics.add(lambda: mesh_families(mesh.counters))
        self.metrics.add(lambda: handshake_families(mesh.first_packets))
        self.metrics.before_detail(figures.read_lags)
        self.metrics.add(figures.detail, detail=True)

    async def _sections(self) -> list[Section]:
        """Of /statusz, which is there from the start on."""
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
        """Answer what is under way, sync the log, let the data folder go."""
        self._busy_with = "draining"
        if self._control is not None:
            await self._control.close()
        if self._state is not None:
            self._state.parked_fetches.drain()
            self._state.leases.drain()
            self._state.groups.drain()
        if self._allowed is not None:
            await self._allowed.close()
        if self._mesh is not None:
            await self._mesh.close(_DRAIN_SECONDS)
        for task in self._background:
            task.cancel()
        if self._rewriting is not None:
            await self._rewriting.close()
        if self._state is not None:
            await self._state.groups.close()
        if self._state is not None:
            self._state.admissions.close()
            await self._state.log.close()
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
        """What an operator is told once it runs."""
        return {
            "mesh": join_address(*self._address),
            "operations": join_address(*self._operations_address),
            "node_id": self._identity.node_id if self._identity else "",
        }


async def _serve(handler: Handler, state: BrokerState, context: OpContext, op: Any) -> WireStruct:
    """Run a handler for an org. Org 0 is the broker's own, and is nobody's to name."""
    if not INTERNAL_ORG < context.org_id <= LAST_ORG:
        raise OpFailedError(ErrorCode.INVALID_REQUEST)
    return await handler(state, context, op)


async def _count(
    handler: Handler, state: BrokerState, stats: OpStats, context: OpContext, op: Any
) -> WireStruct:
    """`_serve`, and count it."""
    began = time.perf_counter()
    try:
        answer = await _serve(handler, state, context, op)
    except Exception as e:
        stats.failed(e.error_code if isinstance(e, OpFailedError) else _UNKNOWN_ERROR)
        raise
    stats.answered(context, time.perf_counter() - began, answer)
    return answer


def fsync_policy(setting: str) -> FsyncPolicy:
    """The policy that `wal.fsync` names: commit, never or interval:<ms>."""
    if setting == "commit":
        return FsyncPolicy()
    if setting == "never":
        return FsyncPolicy(0.0)
    return FsyncPolicy(int(setting.removeprefix("interval:")) / 1000)


class DataFolder:
    """The broker's folder: one holder at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock: int | None = None

    @property
    def wal(self) -> Path:
        """Where the log is."""
        return self._path / "wal"

    @property
    def restoring(self) -> Path:
        """Where a snapshot is restored to; it becomes `wal` when it is whole."""
        return self._path / "restoring"

    @property
    def size(self) -> int:
        """Bytes of the file system that it is on."""
        return shutil.disk_usage(self._path).total

    def hold(self) -> None:
        """Make the folder ours, with a log in it.

        Raises:
            StartupError: it cannot be written, another broker has it, or a snapshot is being
                restored into it.
        """
        self.lock()
        if self.restoring.exists():
            self.release()
            raise StartupError(
                f"a restore into the data folder {self._path} did not finish: repeat `quafka "
                f"snapshot restore`, or remove {self.restoring}"
            )
        try:
            self.wal.mkdir(exist_ok=True)
            # The log syncs what is in its folder; that the folder exists must be durable, too.
            sync_folder(self._path)
        except OSError as e:
            self.release()
            raise StartupError(f"cannot use the data folder {self._path}: {e.strerror}") from e

    def lock(self) -> None:
        """Make the folder ours; what is in it stays as it is.

        Raises:
            StartupError: it cannot be written, or another broker has it.
        """
        try:
            is_new = not self._path.exists()
            self._path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(
                self._path / "broker.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640
            )
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            sync_folder(self._path)
            if is_new:
                sync_folder(self._path.resolve().parent)
        except BlockingIOError as e:
            self.release()
            raise StartupError(f"the data folder {self._path} is held by another broker") from e
        except OSError as e:
            self.release()
            raise StartupError(f"cannot use the data folder {self._path}: {e.strerror}") from e

    def release(self) -> None:
        """Let another broker have it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
