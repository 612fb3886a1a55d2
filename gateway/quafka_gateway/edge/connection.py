"""One client's TCP connection: requests in, responses out, in the order of the requests.

`RequestPipeline` has the requests; this module handles the socket's events and decides when it is
read. At a listener with SASL the bytes go to `FirstAuthentication` until the client has
authenticated.

Back-pressure is by not reading. A client is not read from while it has the maximum number of
requests in flight or does not read its responses, and no client is read from while the requests of
all clients exceed their bound (`RequestMemory`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import cast

from quafka_gateway.context import Services
from quafka_gateway.edge.authentication import FirstAuthentication, SaslConnection, SessionGate
from quafka_gateway.edge.connected_client import ConnectedClient
from quafka_gateway.edge.org_turn import OrgTurn
from quafka_gateway.edge.pipeline import PipelineEvents, RequestPipeline
from quafka_gateway.edge.progress import RequiredProgress
from quafka_gateway.edge.request_intake import RequestIntake
from quafka_gateway.edge.request_trace import ConnectionTracing
from quafka_gateway.edge.response_writer import ResponseWriter
from quafka_gateway.edge.throttling import Muting, peer_has_gone
from quafka_gateway.handlers.kafka_api import AnyApi
from quafka_gateway.listeners import KafkaListener
from quafka_gateway.memory import NO_ORG, OrgResponses
from quafka_gateway.quotas.kinds import QuotaKind
from quafka_gateway.security.org_of import org_of
from quafka_gateway.security.principal import ANONYMOUS, Principal
from quafka_gateway.security.sasl.mechanism import Account
from quafka_gateway.security.session import SSL, ClientSession
from quafka_gateway.tenant import Tenant
from quafka_gateway.tenants import OrgRefusedError, Tenants
from quafka_proto.errors import Malformed

log = logging.getLogger("quafka.gateway.connection")

_API_VERSIONS = 18


class KafkaConnection(asyncio.Protocol):
    """Serves one client until it goes, breaks the protocol or the gateway drains."""

    # Set by `connection_made`, which asyncio calls first.
    _loop: asyncio.AbstractEventLoop
    _intake: RequestIntake
    _tracing: ConnectionTracing
    _writer: ResponseWriter
    _pipeline: RequestPipeline
    _session: ClientSession
    _turn: OrgTurn
    _muting: Muting

    def __init__(
        self,
        services: Services,
        apis: Mapping[int, AnyApi],
        listener: KafkaListener,
        serial: int,
        on_close: Callable[[KafkaConnection], None],
        may_open: Callable[[KafkaConnection], bool] = lambda _: True,
        certificate_name: str = "",
    ) -> None:
        """`listener` is the one that the client connected to. `may_open` is called once its
        address is known; False refuses the client. `certificate_name`: the name that the client
        has proven by its certificate."""
        self._services = services
        self._apis = apis
        self._listener = listener
        self._client = ConnectedClient("?", 0, serial)
        self._on_close = on_close
        self._may_open = may_open
        self._certificate_name = certificate_name
        self._transport: asyncio.Transport | None = None
        self._reading = True
        self._draining = False
        self._refused = False  # to be closed when it is not muted any more
        self._last_active = 0.0  # loop time of the last byte received or response written
        self._authentication: FirstAuthentication | None = None  # None: not asked for, or done
        self._gate: SessionGate | None = None  # None: the client need not authenticate

    # --- asyncio.Protocol -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername")
        if peer:
            self._client = ConnectedClient(str(peer[0]), int(peer[1]), self._client.serial)
        transport = cast(asyncio.Transport, transport)
        if not self._may_open(self):
            transport.abort()
            return
        self._loop = asyncio.get_running_loop()
        tenant = self._enter(self._services.tenants)
        if tenant is None:
            self._services.stats.refused += 1
            self._on_close(self)
            transport.abort()
            return
        self._transport = transport
        self._last_active = self._loop.time()
        self._muting = Muting(self._loop, self._unmuted)
        services, config = self._services, self._services.config
        rate = config.socket_min_bytes_per_second
        reads = RequiredProgress(config.socket_response_stall_ms / 1000, rate)
        sends = RequiredProgress(config.socket_request_stall_ms / 1000, rate)
        self._held = services.request_memory.open(self.host, self._evict, self._balance_reading)
        self._intake = RequestIntake(services.request_max_bytes, self._held, sends)
        listener = self._listener
        name = self._certificate_name
        self._session = ClientSession(
            tenant,
            Principal("User", name) if name else ANONYMOUS,
            listener.name,
            listener.advertised,
            mechanism=SSL if name else "",
        )
        self._turn = OrgTurn(services.turns, self._session)
        party = NO_ORG if listener.protocol.sasl else tenant.party
        responses = services.response_memory.of(party)
        self._writer = ResponseWriter(
            transport, responses, services.stats, reads, self._went_on, self._turn
        )
        self._tracing = ConnectionTracing(services, self._session, self._client)
        if self._listener.protocol.sasl:
            self._begin_authentication()
        else:
            self._held.enter(tenant.party)
            if name:
                services.audit.login(self._session, self._client.kafka_host)
        self._pipeline = RequestPipeline(
            services,
            self._session,
            self._apis,
            self._client,
            self._tracing,
            self._held,
            self._intake.frames,
            self._writer,
            PipelineEvents(self._refuse, self.close, self._advanced, self._throttle),
            self._turn,
            self._gate,
        )
        if self._authentication is None:
            self._count_opening(self._session.tenant)

    def _count_opening(self, tenant: Tenant) -> None:
        """Mute a client whose address connects too often; close one whose address has too many."""
        quotas = self._services.quotas
        opening = quotas.open_connection(tenant, self.host, self._loop.time())
        if opening.seconds:
            quotas.count(tenant, "", QuotaKind.CONNECTIONS, opening.seconds)
            self._refused = opening.refused
            self._throttle(opening.seconds)

    def _enter(self, tenants: Tenants) -> Tenant | None:
        """The tenant of the listener's org, of the one that the client's name ends with, or of the
        gateway's own; None: it takes no client.

        At a listener with SASL a client enters an org when it has authenticated. Until then none of
        its requests is served, and the own org is only a placeholder.
        """
        listener, sasl = self._listener, self._services.sasl
        if listener.protocol.sasl:
            assert sasl is not None, "a listener asks for it"
            if not sasl.failures.bars(self.host, self._loop.time()):
                return tenants.own
            whose = f"clients at {self.host}"
            self._services.refusals.warning(
                whose, "refusing %s: too many have failed to authenticate", whose
            )
            return None
        try:
            if self._certificate_name and not listener.org:
                return self._enter_by_name(tenants)
            return tenants.enter_named(listener.org, self)
        except OrgRefusedError as e:
            name = self._certificate_name
            whose = "the org that their certificate names" if name else "the own org"
            if listener.org:
                whose = f"org {listener.org} of listener {listener.name}"
            self._services.refusals.warning(whose, "refusing clients of %s: %s", whose, e)
            if name:
                audit = self._services.audit
                audit.login_refused(listener.name, SSL, name, self._client.kafka_host, str(e))
            return None

    def _enter_by_name(self, tenants: Tenants) -> Tenant:
        """Enter the org of the certificate's name. Raises OrgRefusedError."""
        if not tenants.directory.complete:
            raise OrgRefusedError("the orgs are not known yet")
        user = org_of(tenants.directory, tenants.own_id, "", self._certificate_name)
        tenant = tenants.enter(user.org_id, self, user.org_name)
        self._certificate_name = user.name
        return tenant

    def data_received(self, data: bytes) -> None:
        self._services.stats.received += len(data)
        if self._authentication is not None:
            self._authentication.feed(data)
        else:
            self._take(data)

    def _take(self, data: bytes) -> None:
        if self._turn.turns.shared and not self._turn.joined and self._transport is not None:
            self._turn.join(self._transport, self._loop)
        try:
            self._intake.feed(data, self._loop.time())
        except Malformed as e:
            self._refuse(str(e))
        else:
            self._pipeline.run()
            if self._intake.frames:  # also where the pipeline waits for its org's turn
                self._balance_reading()

    def pause_writing(self) -> None:
        self._writer.pause()

    def resume_writing(self) -> None:
        self._turn.run(self._resume)  # megabytes may be written at once

    def _resume(self) -> None:
        if self._transport is None:
            return  # the client disconnected while its org waited for its turn
        self._writer.resume()
        if self._authentication is not None:
            self._authentication.run()
        self._pipeline.run()

    def _went_on(self) -> None:
        """Bytes of a file were sent: the next response may follow."""
        self._pipeline.run()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is None:
            return  # it was refused
        self._transport = None
        self._turn.leave(self._loop)
        self._muting.close()
        self._writer.close()
        if self._authentication is not None:
            self._authentication.close()
            self._authentication = None
        if self._gate is not None:
            self._gate.close()
            self._gate = None
        self._intake.connection_lost(self._loop.time())
        self._pipeline.connection_lost()
        self._session.tenant.connection_lost(self._client.serial)
        self._services.tenants.leave(self._session.tenant, self)
        self._on_close(self)

    # --- authentication ---------------------------------------------------------------------

    def _begin_authentication(self) -> None:
        services = self._services
        assert services.sasl is not None, "a listener asks for it"
        connection = SaslConnection(
            services,
            services.sasl,
            self._apis[_API_VERSIONS],
            self._listener,
            self._client,
            self._session,
            self._writer,
            self.close,
            self._finish,
        )
        self._gate = SessionGate(connection, self._reauthenticated)
        self._authentication = FirstAuthentication(
            connection, self._held, self._admit, self._authenticated, self._balance_reading
        )

    def _admit(self, mechanism: str, account: Account, expires_at: float) -> str:
        """The client has proven who it is: let it into its org, or return why not."""
        try:
            tenants = self._services.tenants
            self._session.tenant = tenants.enter(account.org_id, self, account.org_name)
        except OrgRefusedError as e:
            return str(e)
        party = self._session.tenant.party
        self._held.enter(party)
        self._writer.enter(self._services.response_memory.of(party))
        self._session.principal = Principal("User", account.name)
        self._count_opening(self._session.tenant)
        assert self._gate is not None, "it was made with the authentication"
        return self._gate.admit(mechanism, account, expires_at)

    def _authenticated(self, rest: bytes) -> None:
        """The client has its answer; `rest` came behind the exchange."""
        self._authentication = None
        if self._transport is not None and not self._transport.is_closing():
            self._take(rest)
            self._balance_reading()

    def _reauthenticated(self) -> None:
        self._pipeline.run()

    def _finish(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # --- for the listener -------------------------------------------------------------------

    @property
    def host(self) -> str:
        """The client's address, without the port."""
        return self._client.host

    @property
    def busy(self) -> bool:
        """Whether a request is in flight that must be answered before closing."""
        return self._pipeline.busy

    def stalled(self, now: float) -> bool:
        """Whether a request has begun to arrive, and has stopped or arrives too slowly."""
        return self._reading and self._intake.stalled(now)

    def expired(self, now: float) -> bool:
        """Whether the client's session has ended, and it has not authenticated again."""
        return self._gate is not None and self._gate.expired(now)

    def expire(self) -> None:
        """Close the connection: its session has ended."""
        assert self._gate is not None, "it has a session"
        self._gate.expire()

    def idle_since(self, now: float) -> float:
        """Seconds since the last byte from or to the client; 0 while either waits for the other."""
        waits = not self._pipeline.idle or self._writer.unread or self._muting.active
        return 0.0 if waits else now - self._last_active

    @property
    def responses(self) -> OrgResponses:
        """The response memory of the client's org."""
        return self._writer.memory

    def unread(self, now: float) -> tuple[int, float]:
        """Bytes in memory that the client has not read, and `ResponseWriter.seconds_stuck`."""
        return self._writer.unread_in_memory, self._writer.seconds_stuck(now)

    @property
    def left_muted(self) -> bool:
        """Whether the client has gone while it was not read from, which nothing else shows."""
        return (
            self._muting.active and self._transport is not None and peer_has_gone(self._transport)
        )

    def drain(self) -> None:
        """Read no more requests; close when those in flight are answered."""
        self._draining = True
        self._intake.drop_frames(self._loop.time())
        self._pipeline.drain()
        if self._transport is not None:
            self._transport.pause_reading()
            self._pipeline.run()

    def close(self, reason: str) -> None:
        """Close now."""
        self._abort(logging.INFO, reason)

    async def wait_ended(self) -> None:
        """Wait until no request of this connection is being served."""
        await self._pipeline.wait_ended()

    # --- reading and closing ----------------------------------------------------------------

    def _advanced(self) -> None:
        """Bytes were received, or responses written."""
        self._last_active = self._loop.time()
        if not self._reading or self._intake.frames or self._held.full:
            self._balance_reading()
        if self._draining and self._transport is not None and not self.busy and self._writer.empty:
            self._transport.close()

    def _balance_reading(self) -> None:
        waits = self._authentication is not None and self._authentication.full
        full = bool(self._intake.frames) or self._held.full or self._muting.active or waits
        if self._reading and not full:
            return
        if self._transport is None or self._draining or self._transport.is_closing():
            return
        if full and self._reading:
            self._reading = False
            self._transport.pause_reading()
        elif not full and not self._reading:
            self._reading = True
            self._intake.reading_resumed(self._loop.time())
            self._transport.resume_reading()
        if not self._reading and self._held.full:
            self._held.wait_for_room()

    def _throttle(self, seconds: float) -> None:
        """Begin no request and read nothing for this time: the client is over a quota."""
        if self._transport is not None:
            self._muting.extend(seconds)
            self._pipeline.muted = True
            self._balance_reading()

    def _unmuted(self) -> None:
        if self._refused:
            self.close("connection_creation_rate of its address")
            return
        self._last_active = self._loop.time()
        self._pipeline.muted = False
        self._balance_reading()
        self._pipeline.run()

    def _evict(self, reason: str) -> None:
        """Close the connection to make room for others."""
        self._abort(logging.WARNING, reason)

    def _refuse(self, reason: str) -> None:
        """Close the connection of a client that breaks the protocol, with one line in the log."""
        if self._transport is not None:
            self._tracing.trace_refusal(reason)
            self._services.stats.malformed += 1
            self._abort(logging.WARNING, reason)

    def _abort(self, level: int, reason: str) -> None:
        """Close now. Requests that are not decoded yet never begin."""
        if self._transport is not None and not self._transport.is_closing():
            log.log(level, "closing %s: %s", self._client, reason)
            self._transport.abort()
            self._intake.drop_frames(self._loop.time())
