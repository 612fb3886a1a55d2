"""The gateway program: a listener on one side, the way to the brokers on the other."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from quafka_gateway import status
from quafka_gateway.api import APIS
from quafka_gateway.cluster import routes
from quafka_gateway.cluster.admin import Admin
from quafka_gateway.cluster.broker_link import BrokerLink
from quafka_gateway.cluster.brokers import Brokers
from quafka_gateway.cluster.brokers_coordinator import BrokersCoordinator
from quafka_gateway.cluster.brokers_reader import BrokersReader
from quafka_gateway.cluster.coordinator import Coordinator
from quafka_gateway.cluster.routes import OrgRoutes, Route
from quafka_gateway.config import GatewayConfig
from quafka_gateway.context import Services
from quafka_gateway.edge.connection_limits import ConnectionLimits
from quafka_gateway.edge.listener import Listener
from quafka_gateway.fetch.reader import FetchReader
from quafka_gateway.fetch.session import FetchSessions
from quafka_gateway.memory import RequestMemory, ResponseMemory
from quafka_gateway.metrics import GatewayMetrics
from quafka_gateway.stats import GatewayStats
from quafka_mesh_ops.allow_list import AllowList
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.counters import PeerCounters, mesh_families, mesh_page
from quafka_mesh_ops.identity import Identity
from quafka_mesh_ops.settings import join_address, split_address
from quafka_telemetry.operations import Operations
from quafka_telemetry.process_metrics import ProcessFigures, process_metrics
from quafka_telemetry.span_metrics import span_families
from quafka_telemetry.startup import StartupError
from quafka_telemetry.status_page import Section, StatusPage, text
from quafka_telemetry.tracing import Tracer

_DRAIN_SECONDS = 5.0
# Each partition in a fetch session holds some 400 bytes.
_MAX_SESSION_PARTITIONS = 100_000
_MAX_ALL_SESSIONS_PARTITIONS = 400_000
_ANY_ADDRESS = ("0.0.0.0", "::", "")  # noqa: S104 - compared with, not bound


class Gateway:
    """Serves Kafka clients. Holds nothing that is lost when it is killed."""

    def __init__(self, config: GatewayConfig, tracer: Tracer) -> None:
        self._config = config
        self._tracer = tracer
        self._identity: Identity | None = None
        self._links: list[BrokerLink] = []
        self._reader: FetchReader | BrokersReader | None = None
        self._allowed: AllowList | None = None
        self._listener: Listener | None = None
        self._address = self._advertised = self._operations_address = ("", 0)
        self._operations = Operations(self._problems)
        self._process = ProcessFigures("gateway")
        self.metrics = process_metrics(self._process, self._operations)
        self.metrics.add(lambda: span_families(tracer))
        self._services: Services | None = None
        page = StatusPage("gateway", self._problems, self._sections)
        self._operations.add("/statusz", page.page)
        self._draining = False

    async def start(self) -> None:
        """Load the identity, listen, and begin to connect to the brokers.

        Raises:
            StartupError: the key file, the allow-list, the peers or an address cannot be used.
        """
        config = self._config
        table = _routes(config)
        self._identity = Identity.load_or_create(config.node_key)
        self._allowed = AllowList(config.mesh_allow, config.mesh_allowed_file)
        self._operations_address = await self._operations.start(*split_address(config.ops_listen))
        org_routes = OrgRoutes(table, config.org_id)
        self._links = [self._link(broker) for broker in org_routes.brokers]
        self._operations.add("/mesh", mesh_page(self._peers))
        self.metrics.add(lambda: mesh_families(self._peers))
        self._allowed.watch(self._enforce)
        limits = ConnectionLimits(
            config.max_connections,
            config.max_connections_per_ip,
            config.max_connections_per_ip_overrides,
        )
        self._listener = Listener(limits, config.connections_max_idle_ms / 1000)
        self._address = await self._listener.bind(
            *split_address(config.listen), shared=config.listen_shared
        )
        self._advertised = _advertised(config.advertised_listener, self._address)
        responses = ResponseMemory(config.queued_max_response_bytes)
        broker, self._reader = self._way(org_routes, responses)
        for link in self._links:
            await link.start()
        services = Services(
            apis=APIS,
            broker=broker,
            coordinator=self._coordinator(broker, self._links[org_routes.home]),
            advertised=self._advertised,
            tracer=self._tracer,
            request_max_bytes=config.socket_request_max_bytes,
            request_memory=RequestMemory(
                config.queued_max_request_bytes,
                max(config.queued_max_request_bytes_per_ip, config.socket_request_max_bytes),
            ),
            fetch_sessions=FetchSessions(
                config.max_incremental_fetch_session_cache_slots,
                _MAX_ALL_SESSIONS_PARTITIONS,
                _MAX_SESSION_PARTITIONS,
            ),
            response_memory=responses,
            reader=self._reader,
            admin=Admin(self._links, org_routes),
            config=config,
            stats=GatewayStats(config.ops_slow_ms / 1000),
        )
        self._services = services
        self.metrics.add(GatewayMetrics(services, self._listener, self._reader.readers).collect)
        await self._listener.serve(services, APIS)

    async def _sections(self) -> list[Section]:
        """Of /statusz, which is there from the start on."""
        await self.metrics.refresh()
        found: list[Section] = [
            self._process.facts(
                ("listens on", text(join_address(*self._address))),
                ("org", text(self._config.org_id)),
                ("node id", text(self._identity.node_id if self._identity else "")),
            )
        ]
        if self._services is not None and self._listener is not None and self._reader is not None:
            url = self._config.ops_trace_url
            readers = self._reader.readers
            found += status.sections(self._services, self._listener, readers, self._peers, url)
        return found

    def _peers(self) -> list[PeerCounters]:
        return [link.counters() for link in self._links]

    def _link(self, broker: str) -> BrokerLink:
        config = self._config
        assert self._identity is not None
        assert self._allowed is not None
        client = MeshClient(
            *split_address(broker),
            self._identity,
            self._allowed,
            self._tracer,
            datagram_size=config.mesh_datagram_size,
            batched=config.mesh_batched,
        )
        return BrokerLink(client, config.org_id)

    def _way(
        self, org_routes: OrgRoutes, responses: ResponseMemory
    ) -> tuple[BrokerLink | Brokers, FetchReader | BrokersReader]:
        """What handlers are given: one broker as it is, or several as one."""
        config = self._config
        cache_bytes = config.fetch_cache_bytes // len(self._links)
        readers = [
            FetchReader(link, responses, cache_bytes, config.fetch_backfill_bytes, self._tracer)
            for link in self._links
        ]
        for link, reader in zip(self._links, readers, strict=True):
            link.on_produced = reader.produce_acknowledged
        if len(readers) == 1:
            return self._links[0], readers[0]
        brokers = Brokers(self._links, org_routes)
        return brokers, BrokersReader(brokers, readers)

    def _coordinator(self, broker: BrokerLink | Brokers, home: BrokerLink) -> Coordinator:
        if isinstance(broker, Brokers):
            return BrokersCoordinator(home, broker)
        return Coordinator(home)

    def _enforce(self) -> None:
        for link in self._links:
            link.enforce()

    async def close(self) -> None:
        """Answer what is under way, close every client, then the mesh."""
        self._draining = True
        if self._listener is not None:
            await self._listener.close(_DRAIN_SECONDS)
        if self._reader is not None:
            await self._reader.close()
        if self._allowed is not None:
            await self._allowed.close()
        for link in self._links:
            await link.close()
        await self._operations.close()

    def _problems(self) -> dict[str, str]:
        if self._draining:
            return {"gateway": "draining"}
        if not any(link.connected for link in self._links):
            return {"broker": "there is no connection to any"}
        return {}

    def describe(self) -> dict[str, str]:
        """What an operator is told once it runs."""
        return {
            "listen": join_address(*self._address),
            "advertised": join_address(*self._advertised),
            "operations": join_address(*self._operations_address),
            "node_id": self._identity.node_id if self._identity else "",
        }


def _routes(config: GatewayConfig) -> Sequence[Route]:
    if config.mesh_routes and not config.mesh_peers:
        return config.mesh_routes
    if config.mesh_routes:
        raise StartupError("mesh.peers and mesh.routes are both set; exactly one is needed")
    if len(config.mesh_peers) != 1:
        raise StartupError(
            f"mesh.peers names {len(config.mesh_peers)} brokers; one is needed, or mesh.routes"
        )
    return routes.to_one(config.mesh_peers[0])


def _advertised(setting: str, bound: tuple[str, int]) -> tuple[str, int]:
    """The address clients are told: the setting, or the bound one made reachable."""
    if setting:
        return split_address(setting)
    host, port = bound
    return (socket.gethostname() if host in _ANY_ADDRESS else host), port
