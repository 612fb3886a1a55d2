"""The gateway program: listeners for Kafka clients on one side, brokers on the other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from quafka_gateway import status
from quafka_gateway.api import APIS
from quafka_gateway.cluster import routes
from quafka_gateway.cluster.broker_clients import BrokerClients
from quafka_gateway.cluster.broker_link import BrokerLink
from quafka_gateway.cluster.follower import ClusterFollower
from quafka_gateway.cluster.routes import Route
from quafka_gateway.cluster.shard_places import ShardPlaces
from quafka_gateway.config import AUTHORIZER_NONE, GatewayConfig
from quafka_gateway.context import Services
from quafka_gateway.edge.connection_limits import ClientConnectionLimits
from quafka_gateway.edge.listeners import Listeners
from quafka_gateway.edge.tls.handshake import Handshakes
from quafka_gateway.listeners import Endpoint, KafkaListener
from quafka_gateway.memory import RequestMemory, ResponseMemory
from quafka_gateway.metrics import GatewayMetrics
from quafka_gateway.security.audit import AuditLog, open_audit_log
from quafka_gateway.security.authorizer import Authorizer
from quafka_gateway.security.directory import Directory
from quafka_gateway.security.sasl.limits import Unauthenticated
from quafka_gateway.security.sasl.service import SaslService, settings_of
from quafka_gateway.security.watch import SecurityWatch
from quafka_gateway.security.writer import SecurityWriter
from quafka_gateway.stats import GatewayStats
from quafka_gateway.tenant import OrgsMemory, Tenant, TenantLimits, make_tenant
from quafka_gateway.tenants import Tenants
from quafka_loop.fair_turns import FairTurns
from quafka_mesh_ops.allow_list import AllowList
from quafka_mesh_ops.bulk.carrier import BulkCarrier
from quafka_mesh_ops.counters import PeerCounters, mesh_families, mesh_page
from quafka_mesh_ops.identity import Identity
from quafka_mesh_ops.node_ids import is_node_id
from quafka_mesh_ops.settings import RECORDS_AUTO, join_address, split_address
from quafka_mesh_ops.shards import shard_name, shard_number
from quafka_mesh_ops.store_requests import request_families, request_table
from quafka_objects.asynchronous import AsyncObjectStore
from quafka_objects.meter import StoreMeter
from quafka_telemetry.metrics import SECONDS
from quafka_telemetry.operations import Operations
from quafka_telemetry.process_metrics import ProcessFigures, process_metrics
from quafka_telemetry.span_metrics import span_families
from quafka_telemetry.startup import StartupError
from quafka_telemetry.status_page import Section, StatusPage, text
from quafka_telemetry.tracing import Tracer

_DRAIN_SECONDS = 5.0


class Gateway:
    """Serves Kafka clients. Holds no state that a kill could lose."""

    def __init__(self, config: GatewayConfig, tracer: Tracer) -> None:
        self._config = config
        self._tracer = tracer
        self._identity: Identity | None = None
        self._clients: BrokerClients | None = None
        self._tenants: Tenants | None = None
        self._allowed: AllowList | None = None
        self._listeners: Listeners | None = None
        self._bound: tuple[KafkaListener, ...] = ()
        self._operations_address = ("", 0)
        self._operations = Operations(self._problems)
        self._process = ProcessFigures("gateway")
        self.metrics = process_metrics(self._process, self._operations)
        self.metrics.add(lambda: span_families(tracer))
        self._services: Services | None = None
        self._audit = AuditLog()
        self._watch: SecurityWatch | None = None
        self._sasl: SaslService | None = None
        self._follower: ClusterFollower | None = None
        self._store_meter = StoreMeter(SECONDS)
        page = StatusPage("gateway", self._problems, self._sections)
        self._operations.add("/statusz", page.page)
        self._draining = False

    async def start(self) -> None:
        """Load the identity, listen, and begin to connect to the brokers.

        Raises:
            StartupError: the key file, the allow-list, the peers or an address cannot be used.
        """
        config = self._config
        table, listeners = _routes(config), config.listener_table()
        self._identity = Identity.load_or_create(config.node_key)
        self._allowed = AllowList(config.mesh_allow, config.mesh_allowed_file)
        turns = FairTurns()
        self._clients = BrokerClients(
            self._identity,
            self._allowed,
            self._tracer,
            turns,
            datagram_size=config.mesh_datagram_size,
            batched=config.mesh_batched,
            bulk=BulkCarrier(config.mesh_bulk),
            memory=config.mesh_records == RECORDS_AUTO,
        )
        responses = ResponseMemory(config.queued_max_response_bytes)
        self._operations_address = await self._operations.start(
            *split_address(config.ops_listen), config.page_files, fallback=config.ops_port_fallback
        )
        shards = await self._follow(table, self._clients, self._allowed)
        self._tenants = self._make_tenants(table, shards, self._clients, responses, turns)
        self._operations.add("/mesh", mesh_page(self._peers))
        self.metrics.add(lambda: mesh_families(self._peers))
        self._allowed.watch(self._clients.enforce)
        if any(each.protocol.sasl for each in listeners):
            secret = self._identity.secret("SASL: credentials of unknown users")
            self._sasl = SaslService(
                settings_of(config), self._tenants.directory, config.org_id, secret
            )
            await self._sasl.start()
        idle = config.connections_max_idle_ms / 1000
        self._listeners = Listeners(_limits(config), idle, _handshakes(config, self._sasl))
        self._bound = await self._listeners.bind(listeners, shared=config.listen_shared)
        self._audit = open_audit_log(config.audit_log, authenticates=self._authenticates)
        await self._clients.start()
        self._watch = SecurityWatch(
            self._link_of(_brokers(table, shards)[0], config.org_id),
            self._tenants.directory,
            wants_secret=self._sasl is not None,
        )
        self._watch.start()
        writer = self._make_writer(_brokers(table, shards), self._tenants.directory)
        services = self._services = self._make_services(self._tenants, responses, writer)
        self.metrics.add(GatewayMetrics(services, self._listeners).collect)
        await self._listeners.serve(services, APIS)

    async def _follow(
        self, table: Sequence[Route], clients: BrokerClients, allowed: AllowList
    ) -> int:
        """Find the shards and follow their moves; returns their number. 0: there are none.

        Raises:
            StartupError: they are not found, or a route names one that does not exist.
        """
        if not self._config.brokers:
            return 0

        def changed(places: ShardPlaces, moved: Sequence[int]) -> None:
            allowed.trust(sorted(filter(is_node_id, places.nodes())))
            for shard, owner in enumerate(places):
                if shard in moved:
                    clients.move(shard, owner.address)

        follower = self._follower = ClusterFollower(
            self._config.brokers, clients.dial, changed, self._store_meter
        )
        if follower.store is not None:
            self.metrics.add(lambda: request_families(self._store_meter))
        found = await follower.start()
        for route in table:
            if (shard_number(route.broker) or 0) >= len(found):
                raise StartupError(f"mesh.routes: {route}, but there are {len(found)} shards")
        return len(found)

    def _link_of(self, broker: str, org_id: int) -> BrokerLink:
        assert self._clients is not None
        shard = broker if self._config.brokers else ""
        return BrokerLink(self._clients.client_of(broker), org_id, shard)

    def _make_tenants(
        self,
        table: Sequence[Route],
        shards: int,
        clients: BrokerClients,
        responses: ResponseMemory,
        turns: FairTurns,
    ) -> Tenants:
        config = self._config
        limits = TenantLimits(
            config.max_incremental_fetch_session_cache_slots,
            config.fetch_cache_bytes,
            config.fetch_backfill_bytes,
            records_by_place=config.mesh_records == RECORDS_AUTO,
            share_sessions=config.group_share_max_share_sessions,
        )
        store = self._follower.store if self._follower is not None else None
        memory = OrgsMemory(limits, responses, None if store is None else AsyncObjectStore(store))

        def make(org_id: int) -> Tenant:
            client_of = clients.client_of
            places = self._follower.places if self._follower is not None else None
            return make_tenant(
                org_id, table, client_of, limits, memory, self._tracer, shards,
                places.cluster_id if places is not None else "", turns,
                by_name=places is not None and places.by_name,
            )  # fmt: skip

        tenants = Tenants(
            make, config.org_id, Directory(), config.max_orgs, config.metrics_orgs, memory, turns
        )
        _ = tenants.own  # connect to its brokers before clients come
        for listener in config.listener_table():
            if listener.org:
                tenants.named_by_settings(listener.org)
        return tenants

    def _make_writer(self, brokers: Sequence[str], directory: Directory) -> SecurityWriter:
        def link_of(broker: int, org_id: int) -> BrokerLink:
            return self._link_of(brokers[broker], org_id)

        return SecurityWriter(directory, link_of, len(brokers))

    def _make_services(
        self, tenants: Tenants, memory: ResponseMemory, writer: SecurityWriter
    ) -> Services:
        config = self._config
        return Services(
            apis=APIS,
            tenants=tenants,
            listeners=self._bound,
            tracer=self._tracer,
            request_max_bytes=config.socket_request_max_bytes,
            request_memory=RequestMemory(
                config.queued_max_request_bytes,
                max(config.queued_max_request_bytes_per_ip, config.socket_request_max_bytes),
            ),
            response_memory=memory,
            config=config,
            stats=GatewayStats(config.ops_slow_ms / 1000),
            security_writer=writer,
            security_problem=self._security_problem,
            audit=self._audit,
            sasl=self._sasl,
            authorizer=self._make_authorizer(tenants.directory),
        )

    def _make_authorizer(self, directory: Directory) -> Authorizer | None:
        """None if everyone may do everything."""
        config = self._config
        if config.authorizer == AUTHORIZER_NONE or not (config.authorizer or self._authenticates):
            return None
        return Authorizer(
            directory,
            config.org_id,
            config.super_users,
            allows_everyone=config.allow_everyone_if_no_acl_found,
        )

    async def _sections(self) -> list[Section]:
        """The sections of /statusz, which is served from the start on."""
        await self.metrics.refresh()
        found: list[Section] = []
        if self._services is not None and self._listeners is not None:
            url = self._config.ops_trace_url
            found += status.sections(self._services, self._listeners, self._peers, url)
            if self._follower is not None and self._follower.store is not None:
                found.append(request_table(self._store_meter))
        found.append(
            self._process.facts(
                ("listens on", text(_shown(each.endpoint for each in self._bound))),
                ("org", text(self._tenants.own.name if self._tenants else "")),
                ("node id", text(self._identity.node_id if self._identity else "")),
            )
        )
        return found

    def _peers(self) -> list[PeerCounters]:
        return self._clients.counters() if self._clients is not None else []

    async def reload(self) -> None:
        """Read certificates, the allow-list and the keys of tokens again."""
        looks = (
            [] if self._listeners is None else [tls.check() for tls in self._listeners.tls.values()]
        )
        if self._allowed is not None:
            looks.append(self._allowed.check())
        if self._sasl is not None:
            looks.append(self._sasl.reload())
        await asyncio.gather(*looks)

    async def close(self) -> None:
        """Answer the requests in progress, close every connection, then the mesh."""
        self._draining = True
        if self._listeners is not None:
            await self._listeners.close(_DRAIN_SECONDS)
        if self._watch is not None:
            await self._watch.close()
        if self._sasl is not None:
            await self._sasl.close()
        if self._tenants is not None:
            await self._tenants.close()
        if self._allowed is not None:
            await self._allowed.close()
        if self._follower is not None:
            await self._follower.close()
        if self._clients is not None:
            await self._clients.close()
        await self._operations.close()
        await asyncio.to_thread(self._audit.close)

    def _security_problem(self) -> str:
        return self._tenants.directory.problem if self._tenants is not None else ""

    def _problems(self) -> dict[str, str]:
        if self._draining:
            return {"gateway": "draining"}
        if self._clients is None or not self._clients.connected:
            return {"broker": "no broker is connected"}
        directory = self._services.directory if self._services is not None else None
        if directory is not None and not directory.complete and self._authenticates:
            return {"security": f"no copy of users and ACLs yet: {directory.problem}"}
        return {}

    @property
    def _authenticates(self) -> bool:
        return any(each.authenticates for each in self._bound)

    def describe(self) -> dict[str, str]:
        """The addresses and the node id, for the operator, once the gateway runs.

        `listen` and `advertised` are those of the first listener.
        """
        first = self._bound[0]
        return {
            "listen": join_address(first.host, first.port),
            "advertised": join_address(*first.advertised),
            "listeners": _shown(each.endpoint for each in self._bound),
            "advertised_listeners": _shown(each.advertised_endpoint for each in self._bound),
            "operations": join_address(*self._operations_address),
            "node_id": self._identity.node_id if self._identity else "",
        }


def _routes(config: GatewayConfig) -> Sequence[Route]:
    if config.brokers:
        if config.mesh_peers:
            raise StartupError("mesh.peers and brokers are both set; exactly one is needed")
        if not routes.are_shards(config.mesh_routes):
            raise StartupError("with brokers, each rule of mesh.routes names a shard, as shard:0")
        return config.mesh_routes
    if config.mesh_routes and not config.mesh_peers:
        return config.mesh_routes
    if config.mesh_routes:
        raise StartupError("mesh.peers and mesh.routes are both set; exactly one is needed")
    if len(config.mesh_peers) != 1:
        raise StartupError(
            f"mesh.peers names {len(config.mesh_peers)} brokers; one is needed, or mesh.routes, or "
            "brokers"
        )
    return routes.to_one(config.mesh_peers[0])


def _brokers(table: Sequence[Route], shards: int) -> Sequence[str]:
    """All brokers or shards. The first keeps users, ACLs and quotas; all have copies of the orgs:
    the broker of the last route, or shard 0."""
    if shards:
        return [shard_name(number) for number in range(shards)]
    return tuple(dict.fromkeys(route.broker for route in reversed(table)))


def _limits(config: GatewayConfig) -> ClientConnectionLimits:
    return ClientConnectionLimits(
        config.max_connections,
        config.max_connections_per_ip,
        config.max_connections_per_ip_overrides,
    )


def _handshakes(config: GatewayConfig, sasl: SaslService | None) -> Handshakes:
    """With SASL, both phases count the same connections."""
    unauthenticated = Unauthenticated(
        config.max_unauthenticated_connections, config.max_unauthenticated_connections_per_ip
    )
    return Handshakes(
        unauthenticated if sasl is None else sasl.unauthenticated,
        config.connection_authentication_timeout_ms / 1000,
    )


def _shown(endpoints: Iterable[Endpoint]) -> str:
    return ",".join(map(str, endpoints))
