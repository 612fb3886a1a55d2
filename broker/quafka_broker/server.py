"""The broker program: the log, the ops on it, and the mesh server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING

from quafka_broker.chain.metrics import (
    LocalFigures,
    StoreFigures,
    store_families,
    store_sections,
    sum_of,
)
from quafka_broker.cluster.mesh_peers import MeshPeers, grants_of
from quafka_broker.cluster.shard_map import ShardMap
from quafka_broker.config.redis_grants import overlap
from quafka_broker.config.settings import BrokerConfig
from quafka_broker.shard.shard import Shard
from quafka_broker.status import status_page as status
from quafka_broker.status.log_status import ShardStatus, summary
from quafka_broker.status.op_stats import BrokerStats
from quafka_broker.status.shard_figures import ShardsFigures
from quafka_broker.topics.identity import new_cluster_id
from quafka_broker.wal.data_folder import DataFolder
from quafka_broker.wal.disk import RealDisk
from quafka_broker.wal.fsync import FsyncPolicy
from quafka_broker.wal.log import Log
from quafka_mesh_ops.allow_list import AllowList
from quafka_mesh_ops.bulk.carrier import BulkCarrier
from quafka_mesh_ops.counters import handshake_families, limit_families, mesh_families, mesh_page
from quafka_mesh_ops.identity import Identity
from quafka_mesh_ops.ops.cluster import ClusterBroker, ShardOwner
from quafka_mesh_ops.server import MeshServer
from quafka_mesh_ops.settings import RECORDS_AUTO, join_address, split_address
from quafka_mesh_ops.transport.connection_limits import NodeConnectionLimits
from quafka_objects.costs import parse_prices
from quafka_proto.chain_format import Owner
from quafka_proto.cluster_format import ClusterFile
from quafka_proto.errors import Malformed
from quafka_telemetry.metrics import Family
from quafka_telemetry.operations import Operations
from quafka_telemetry.process_metrics import ProcessFigures, process_metrics
from quafka_telemetry.span_metrics import span_families
from quafka_telemetry.startup import StartupError
from quafka_telemetry.status_page import Cell, Section, StatusPage, text
from quafka_telemetry.tracing import Tracer

if TYPE_CHECKING:
    from quafka_broker.cluster.member import ClusterMember
    from quafka_broker.cluster.peers import OtherBrokers
    from quafka_broker.shard.stored_log import LogStore

log = logging.getLogger("quafka.broker")

_DRAIN_SECONDS = 5.0
_RESERVE_SHARE = 20  # the reserve takes at most one part in this many of the disk


class Broker:
    """One broker: on one data folder, or a member of the cluster of an object store."""

    def __init__(self, config: BrokerConfig, tracer: Tracer) -> None:
        self._config = config
        self._tracer = tracer
        self._folder = DataFolder(config.folder)
        self._identity: Identity | None = None
        self._shard: Shard | None = None
        self._member: ClusterMember | None = None
        self._mesh: MeshServer | None = None
        self._peers: MeshPeers | OtherBrokers | None = None
        self._allowed: AllowList | None = None
        self._map = ShardMap()
        self._store: LogStore | None = None
        self._store_figures: StoreFigures | None = None
        if config.store is not None:
            prices = parse_prices(config.store_prices)
            self._store_figures = StoreFigures(
                config.store, prices, self._stored_bytes, self._local_figures
            )
        self._address = self._operations_address = ("", 0)
        self._operations = Operations(self._problems)
        self._process = ProcessFigures("broker")
        self.metrics = process_metrics(self._process, self._operations)
        self.metrics.add(lambda: span_families(tracer))
        self._stats = BrokerStats(config.ops_slow_ms / 1000)
        page = StatusPage("broker", self._problems, self._sections)
        self._operations.add("/statusz", page.page)
        self._busy_with = "starting"

    @property
    def _shards(self) -> list[Shard]:
        """The shards here, by number."""
        if self._member is not None:
            hosted = sorted(self._member.moves.hosted.items())
            return [each.shard for _, each in hosted]
        return [] if self._shard is None else [self._shard]

    async def start(self) -> None:
        """Hold the data folder, recover the log, listen.

        Raises:
            StartupError: the start failed; the message gives the reason in one sentence.
        """
        config = self._config
        problem = overlap(config.sources_redis_allowed)
        if problem:
            raise StartupError(problem)
        self._folder.hold()
        held = asyncio.get_running_loop().time()
        # Started first, so that a long recovery can be told from a broker that hangs.
        self._operations_address = await self._operations.start(
            *split_address(config.ops_listen), config.page_files, fallback=config.ops_port_fallback
        )
        identity = self._identity = Identity.load_or_create(
            config.node_key or config.folder / "node.key"
        )
        entries = (*config.mesh_allow, *grants_of(config.mesh_brokers))
        allowed = self._allowed = AllowList(entries, config.mesh_allowed_file)
        if config.store is None:
            await self._start_on_folder(held, identity, allowed)
        else:
            await self._start_in_store(config.store, identity, allowed)
        self._busy_with = ""

    async def _start_on_folder(self, held: float, identity: Identity, allowed: AllowList) -> None:
        config = self._config
        peers = self._peers = MeshPeers(
            config.mesh_brokers, identity, self._tracer,
            datagram_size=config.mesh_datagram_size, batched=config.mesh_batched,
        )  # fmt: skip
        wal = self._local_log()
        shard = self._shard = Shard(0, config, config.folder, wal, peers, self._stats)
        await shard.open(held)
        await peers.start()
        mesh = await self._listen(identity, allowed)
        mesh.shards.add(0, shard.handlers)
        here = ShardOwner(0, identity.node_id, join_address(*self._address))
        self._map.update([here], [ClusterBroker(here.node, here.address)])
        await shard.start(allowed)

    async def _start_in_store(self, url: str, identity: Identity, allowed: AllowList) -> None:
        config = self._config
        if config.mesh_brokers:
            raise StartupError("mesh.brokers is for brokers with data folders of their own")
        if config.snapshot_interval_ms:
            raise StartupError(
                "snapshot.interval.ms is for brokers with data folders; for a log in an object "
                "store, `quafka snapshot create URL` makes snapshots, which copy nothing"
            )
        # Imported here: a broker with a data folder needs none of it.
        from quafka_broker.cluster.hosted_shard import HostResources
        from quafka_broker.cluster.member import ClusterMember
        from quafka_broker.cluster.peers import OtherBrokers
        from quafka_broker.shard.stored_log import join_cluster, open_log_store

        self._busy_with = "opening the store"
        new = ClusterFile(new_cluster_id(), config.store_shards, by_name=True)
        try:
            assert self._store_figures is not None, "there is a store"
            meter = self._store_figures.meter
            store = self._store = await asyncio.to_thread(open_log_store, url, meter)
            cluster = await join_cluster(store, new)
        except (OSError, Malformed) as e:
            raise StartupError(f"cannot use the store {url}: {e}") from e
        if cluster.shards != config.store_shards:
            log.warning(
                "store.shards = %d has no effect: the number was fixed at %d by the first start",
                config.store_shards, cluster.shards,
            )  # fmt: skip
        self._map.cluster_id, self._map.by_name = cluster.cluster_id, cluster.by_name
        others = self._peers = OtherBrokers(
            identity, allowed, self._tracer,
            datagram_size=config.mesh_datagram_size, batched=config.mesh_batched,
        )  # fmt: skip
        mesh = await self._listen(identity, allowed)
        owner = Owner(identity.node_id, self._advertised())
        hosting = HostResources(store, cluster, owner, config, mesh, allowed, self._stats)
        member = self._member = ClusterMember(hosting, self._map, others)
        mesh.shards.serve_everywhere(member.handlers)
        self._busy_with = "taking over shards"
        await member.start()

    def _local_figures(self) -> LocalFigures:
        hosted = self._member.moves.hosted.values() if self._member is not None else ()
        return sum_of([each.local_figures() for each in hosted])

    def _stored_bytes(self) -> int:
        hosted = self._member.moves.hosted.values() if self._member is not None else ()
        return sum(file.size for each in hosted for file in each.stored.disk.files.stored())

    def _advertised(self) -> str:
        """The address for gateways and other brokers. Raises StartupError."""
        if self._config.mesh_advertised:
            return self._config.mesh_advertised
        host, port = self._address
        if ip_address(host).is_unspecified:
            raise StartupError(
                f"mesh.listen={self._config.mesh_listen} is no address for others: set "
                "mesh.advertised"
            )
        return join_address(host, port)

    def _local_log(self) -> Log:
        config = self._config
        return Log(
            RealDisk(self._folder.wal),
            fsync_policy(config.wal_fsync),
            config.wal_segment_bytes,
            config.wal_checkpoint_bytes,
            min(config.wal_reserve_bytes, self._folder.size // _RESERVE_SHARE),
        )

    async def _listen(self, identity: Identity, allowed: AllowList) -> MeshServer:
        config = self._config
        mesh = self._mesh = MeshServer(
            identity,
            allowed,
            {},
            self._tracer,
            everywhere=self._map.handlers,
            grants=allowed.grant,
            datagram_size=config.mesh_datagram_size,
            batched=config.mesh_batched,
            bulk=BulkCarrier(config.mesh_bulk),
            memory=config.mesh_records == RECORDS_AUTO,
            limits=NodeConnectionLimits(
                allowed, config.mesh_max_connections, config.mesh_max_connections_per_node
            ),
        )
        try:
            self._address = await mesh.start(*split_address(config.mesh_listen))
        except OSError as e:
            reason = e.strerror or e
            ports = "UDP and TCP" if config.mesh_bulk == BulkCarrier.TLS else "UDP"
            raise StartupError(f"cannot listen on {config.mesh_listen} ({ports}): {reason}") from e
        self._operations.add("/mesh", mesh_page(mesh.counters))
        self._add_metrics(mesh)

        def enforce() -> None:
            mesh.enforce()
            for shard in self._shards:
                shard.enforce()

        allowed.watch(enforce)
        return mesh

    async def _sections(self) -> list[Section]:
        """The sections of /statusz, which is served from the beginning of the start."""
        await self.metrics.refresh()
        await self.metrics.refresh(detail=True)
        shards = [ShardStatus(each.number, each.state, each.figures) for each in self._shards]
        found: list[Section] = [summary(shards, *self._about())] if self._mesh is not None else []
        if self._member is not None:
            from quafka_broker.cluster.status import cluster_section

            found.append(cluster_section(self._member))
        if self._mesh is not None:
            url, peers = self._config.ops_trace_url, self._mesh.counters
            found += status.sections(shards, self._stats, peers, url)
        if self._store_figures is not None:
            found += store_sections(self._store_figures)
        found.append(self._process.facts(*(() if self._mesh is not None else self._about())))
        return found

    def _about(self) -> list[tuple[str, Cell]]:
        """What the page shows of the process from the beginning of its start."""
        about = [
            ("data folder", text(self._config.folder)),
            ("mesh", text(join_address(*self._address))),
            ("mesh connections", text(self._shown_connections())),
            ("node id", text(self._identity.node_id if self._identity else "")),
        ]
        if self._member is not None:
            of = f"{len(self._shards)} of {len(self._member.view.manifests)}"
            about.insert(0, ("shards here", text(of)))
        return about

    def _shown_connections(self) -> str:
        if self._mesh is None:
            return ""
        limits = self._mesh.limits
        refused = limits.refused.total()
        return f"{limits.used} of {limits.most}" + (f", {refused} refused" if refused else "")

    async def reload(self) -> None:
        """Read the allow-list again. Other files are read when they are needed."""
        if self._allowed is not None:
            await self._allowed.check()

    async def close(self) -> None:
        """Answer the ops under way, sync the log, and release the data folder."""
        self._busy_with = "draining"
        if self._member is not None:
            await self._member.close()
        if self._shard is not None:
            await self._shard.drain()
        self._map.drain()
        if self._allowed is not None:
            await self._allowed.close()
        if self._mesh is not None:
            await self._mesh.close(_DRAIN_SECONDS)
        if self._shard is not None:
            await self._shard.close()
        if self._peers is not None:
            await self._peers.close()
        if self._store is not None:
            await self._store.close()
        await self._operations.close()
        self._folder.release()

    def _add_metrics(self, mesh: MeshServer) -> None:
        figures = ShardsFigures(lambda: [shard.figures for shard in self._shards])
        self.metrics.before(figures.read)
        self.metrics.add(figures.collect)
        self.metrics.add(lambda: mesh_families(mesh.counters))
        self.metrics.add(lambda: limit_families(mesh.limits))
        self.metrics.add(lambda: handshake_families(mesh.first_packets))
        self.metrics.before_detail(figures.read_lags)
        self.metrics.before_detail(figures.read_compaction)
        self.metrics.add(figures.detail, detail=True)
        self.metrics.add(self._cluster_families)
        if self._store_figures is not None:
            self.metrics.add(partial(store_families, self._store_figures))

    def _cluster_families(self) -> Iterator[Family]:
        if self._member is not None:
            from quafka_broker.cluster.status import cluster_families

            yield from cluster_families(self._member)

    def _problems(self) -> dict[str, str]:
        shards = self._shards if self._member is None else ()
        busy = next((shard.busy_with for shard in shards if shard.busy_with), self._busy_with)
        problems = {"broker": busy} if busy else {}
        for shard in self._shards:
            problem = shard.problem()
            if problem is not None:
                problems["log" if self._member is None else f"shard {shard.number}"] = problem
        if self._member is not None:
            problems |= self._member.shown_problems()
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
