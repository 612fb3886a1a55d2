"""The program `quafka console`."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Generator
from contextlib import contextmanager

import uvicorn

from quafka_client.registry.client import SchemaRegistry
from quafka_client.security import ClientSecurity
from quafka_console.app import Console
from quafka_console.data.rates import Rates
from quafka_console.data.status_reader import OperationsPort
from quafka_console.data.traces.receiver import TraceReceiver
from quafka_console.data.traces.store import TraceStore
from quafka_console.listening import listen
from quafka_console.session import People
from quafka_console.settings import ConsoleConfig
from quafka_loop import sockets
from quafka_mesh_ops.settings import join_address, split_address
from quafka_telemetry.metrics import Metrics
from quafka_telemetry.page_access import PageAccess
from quafka_telemetry.page_files import PageFiles
from quafka_telemetry.startup import StartupError

_STOP_SECONDS = 5


def _operations(config: ConsoleConfig) -> list[OperationsPort]:
    """Raises StartupError: a file cannot be used."""
    token, context = "", None
    try:
        if config.console_operations_token_file is not None:
            lines = config.console_operations_token_file.read_text().split("\n", 1)
            token = lines[0].strip()
        if config.console_operations_ca_file is not None:
            context = ssl.create_default_context(cafile=config.console_operations_ca_file)
    except (OSError, ValueError) as e:
        raise StartupError(f"the console's files for operations ports: {e}") from e
    return [OperationsPort(each, token, context) for each in config.console_operations]


def _registry(config: ConsoleConfig) -> SchemaRegistry | None:
    """Raises StartupError: the password's file cannot be used."""
    if not config.console_registry_url:
        return None
    password = ""
    try:
        if config.console_registry_password_file is not None:
            lines = config.console_registry_password_file.read_text().split("\n", 1)
            password = lines[0].strip()
    except (OSError, ValueError) as e:
        raise StartupError(f"console.registry.password.file: {e}") from e
    return SchemaRegistry(config.console_registry_url, config.console_registry_user, password)


class _Server(uvicorn.Server):
    """Leaves signals to the process that runs it."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class ConsoleServer:
    """Serves the console until `close`."""

    def __init__(
        self,
        config: ConsoleConfig,
        security: ClientSecurity,
        listening_fd: int | None = None,
        token_claim: str = "",
    ) -> None:
        """`security`: how it connects; without credentials each person signs in. `listening_fd`:
        the listening socket, if a parent process has made it. `token_claim`: see People.

        Raises StartupError: a file of the settings cannot be used.
        """
        self.metrics = Metrics()
        self._config = config
        self._listening_fd = listening_fd
        self._address = ""
        brokers = [split_address(each) for each in config.console_brokers]
        self._people = People(brokers, security, token_claim)
        ports = _operations(config)
        self._rates = Rates(ports)
        traces = TraceStore(config.console_traces_bytes)
        tokens = config.console_traces_token_file
        closed = self._people.must_sign_in and tokens is None
        access = None if closed else PageAccess(PageFiles(token=tokens))
        self._console = Console(
            self._people,
            ports,
            self._rates,
            traces,
            TraceReceiver(traces, access),
            config.console_trace_url,
            _registry(config),
            config.console_read_only,
            frozenset(config.console_hosts),
        )
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Serve. Raises StartupError: the address cannot be used."""
        os.nice(self._config.console_nice)  # threads that start later are as nice
        fd = self._listening_fd
        listening = listen(self._config.console_listen) if fd is None else sockets.socket(fileno=fd)
        host, port = listening.getsockname()[:2]
        self._address = join_address(host, port)
        config = uvicorn.Config(
            self._console.asgi(), log_config=None, log_level="warning", access_log=False,
            timeout_graceful_shutdown=_STOP_SECONDS, ws_max_size=4 << 20, server_header=False,
        )  # fmt: skip
        self._server = _Server(config)
        self._serving = asyncio.create_task(self._server.serve([listening]))
        while not self._server.started:
            if self._serving.done():
                raise StartupError("the console's web server has ended")
            await asyncio.sleep(0.01)
        self._rates.start()

    async def reload(self) -> None:
        """Nothing of the console can be reloaded."""

    async def close(self) -> None:
        """Stop serving, and disconnect."""
        await self._rates.close()
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await asyncio.wait((self._serving,))
        await self._people.close()

    def describe(self) -> dict[str, str]:
        """See Program."""
        return {"console": f"http://{self._address}/"}
