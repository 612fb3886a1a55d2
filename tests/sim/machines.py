"""The machines of a simulation: brokers, gateways and clients, each with one process at a time.

A process is the product's own program on an event loop of its own. A machine outlives it, with its
address, its disk and its clock.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

from quafka_broker.config.settings import BrokerConfig
from quafka_broker.server import Broker
from quafka_gateway.config import GatewayConfig
from quafka_gateway.listeners import parse_endpoints
from quafka_gateway.server import Gateway
from quafka_telemetry.tracing import Tracer
from tests.sim.disk import SimulatedDisk
from tests.sim.site import Site
from tests.support.virtual.hub import Fiber, Node
from tests.support.virtual.loop import VirtualLoop

MESH_PORT, KAFKA_PORT = 7000, 9092


class Machine:
    """A host with at most one process."""

    def __init__(self, site: Site, name: str, address: str) -> None:
        self.site = site
        self.name = name
        self.address = address
        self.skew = 0.0
        self.node: Node | None = None
        """The process that runs now."""
        self.error: BaseException | None = None
        """Why the last process ended by itself."""
        self._is_asked = False
        """Whether the present process was asked to end."""
        self._stop: asyncio.Event | None = None
        self._loop: VirtualLoop | None = None
        self._fiber: Fiber | None = None

    @property
    def is_running(self) -> bool:
        """Whether its process has neither ended nor been killed."""
        return self.node is not None and not self.node.is_dead

    def start(self) -> None:
        """Start a process."""
        assert not self.is_running
        self.error = None
        self._is_asked, self._loop, self._stop = False, None, None
        node = self.node = Node(self.name, self.address)
        node.skew = self.skew
        self.site.net.add(node)
        self._fiber = self.site.hub.spawn(self._live, self.name, node)

    def kill(self, *, power: bool = False) -> None:
        """End the process at once; `power`: with its host."""
        assert self.node is not None
        self.site.hub.kill(self.node)
        self.site.net.kill(self.node, silently=power)
        self.site.graves.append(self.node)
        self.left_behind(power=power)

    def left_behind(self, *, power: bool) -> None:
        """What the system does for a process that was killed."""

    def set_skew(self, seconds: float) -> None:
        """Set the wall clock."""
        self.skew = seconds
        if self.node is not None:
            self.node.skew = seconds

    def stop(self) -> None:
        """Ask the process to end in order, as SIGTERM does."""
        self._is_asked = True
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)

    def _live(self) -> None:
        loop = self._loop = VirtualLoop(self.site.hub, self.site.net)
        node = self.node
        try:
            loop.run_until_complete(self._main())
        except Exception as e:
            self.error = e
            self.site.ended(self, e)
        finally:
            if self.node is node and node is not None and not node.is_dead:
                node.is_dead = True
                self.site.net.kill(node)

    async def _main(self) -> None:
        asyncio.get_running_loop().set_exception_handler(self._unhandled)
        self._stop = asyncio.Event()
        if self._is_asked:
            self._stop.set()
        await self.run(self._stop)

    def _unhandled(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.site.unhandled(self, str(context.get("message")), error)

    async def run(self, stop: asyncio.Event) -> None:
        """The process: returns in good time after `stop`."""
        raise NotImplementedError


class Program(Protocol):
    """A broker or a gateway."""

    async def start(self) -> None: ...

    async def close(self) -> None: ...


class ServerMachine(Machine):
    """A machine that runs one of the product's programs."""

    is_ready = False
    """Whether the present process has started."""

    async def run(self, stop: asyncio.Event) -> None:
        self.is_ready = False
        program = self.make()
        await program.start()
        self.is_ready = True
        self.site.ready(self)
        await stop.wait()
        self.is_ready = False
        await program.close()

    def make(self) -> Program:
        """A new program with the machine's settings."""
        raise NotImplementedError


class BrokerMachine(ServerMachine):
    """A broker with a disk of its own, or with its log in the site's store."""

    def __init__(
        self, site: Site, name: str, address: str, settings: Callable[[Path], dict[str, Any]]
    ) -> None:
        super().__init__(site, name, address)
        self.folder = site.folder / name
        self.folder.mkdir()
        self.key = site.identity(name)
        site.brokers_by_folder[self.folder] = self
        self.disk = SimulatedDisk(site.hub, site.random_of(f"disk {name}"), site.note)
        self._settings = settings
        self._program: Broker | None = None

    def make(self) -> Program:
        common: dict[str, Any] = {
            "mesh_listen": f"{self.address}:{MESH_PORT}",
            "mesh_records": "value",
            "ops_listen": "127.0.0.1:8080",
            "node_key": self.key,
        }
        config = BrokerConfig(**common, **self._settings(self.folder))
        self._program = Broker(config, Tracer())
        return self._program

    def left_behind(self, *, power: bool) -> None:
        self.is_ready = False
        self.disk = self.disk.after_power_cut() if power else self.disk.after_kill()
        if self._program is not None:
            self._program._folder.release()


class GatewayMachine(ServerMachine):
    """A gateway. Its settings may have a `login_port`, too."""

    def __init__(
        self, site: Site, name: str, address: str, key: Path, settings: Callable[[], dict[str, Any]]
    ) -> None:
        super().__init__(site, name, address)
        self._key = key
        self._settings = settings

    def make(self) -> Program:
        settings = self._settings()
        login_port: int | None = settings.pop("login_port", None)
        config = GatewayConfig(
            mesh_records="value",
            ops_listen="127.0.0.1:8080",
            node_key=self._key,
            **_listeners(self.address, login_port),
            **settings,
        )
        return Gateway(config, Tracer())

    def left_behind(self, *, power: bool) -> None:
        self.is_ready = False


def _listeners(address: str, login_port: int | None) -> dict[str, Any]:
    """Where everybody may do everything; and where clients log in, and have rights, if at all."""
    if login_port is None:
        return {"listen": f"{address}:{KAFKA_PORT}"}
    open_one = f"PLAINTEXT://{address}:{KAFKA_PORT}"
    return {
        "listeners": parse_endpoints(f"{open_one},SASL_PLAINTEXT://{address}:{login_port}"),
        "listener_allow_plaintext_sasl": True,
        "super_users": "User:ANONYMOUS",
        "audit_log": "off",
    }


class ClientMachine(Machine):
    """A client program. `make(session)` returns the program of each process."""

    def __init__(
        self,
        site: Site,
        name: str,
        address: str,
        make: Callable[[str], Callable[[], Awaitable[None]]],
    ) -> None:
        super().__init__(site, name, address)
        self._make = make
        self._sessions = 0

    @property
    def session(self) -> str:
        """The name of the last process in the history."""
        return f"{self.name}.{self._sessions}" if self._sessions > 1 else self.name

    async def run(self, stop: asyncio.Event) -> None:
        self._sessions += 1
        program = self._make(self.session)
        running = asyncio.ensure_future(program())
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
