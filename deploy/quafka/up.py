"""`quafka up`: a broker and a gateway process on this machine, looked after until Ctrl-C.

This process stays light: it starts the two, restarts one that dies, and stops both in order
(gateway first). They run in sessions of their own, so that Ctrl-C reaches only this one, and each
holds the end of a pipe from it: should this process be killed, they drain by themselves.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from quafka.process import EXIT_CANNOT_START
from quafka.settings import UpConfig
from quafka.sources import Effective, declared, flag
from quafka_broker.config import BrokerConfig
from quafka_gateway.config import GatewayConfig
from quafka_mesh_ops.errors import StartupError
from quafka_mesh_ops.identity import Identity
from quafka_mesh_ops.settings import CommonSettings

_START_SECONDS = 60.0
_STOP_SECONDS = 12.0
_BACKOFF_SECONDS = (0.1, 5.0)


class _Child:
    """One program as a process. Keeps its port over restarts."""

    def __init__(self, name: str, arguments: dict[str, str]) -> None:
        self.name = name
        self.arguments = arguments
        self.ready: dict[str, str] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._lifeline = -1

    async def start(self) -> bool:
        """Start it and wait until it is ready; False: it ended instead, having said why."""
        ready_read, ready_write = os.pipe()
        lifeline_read, self._lifeline = os.pipe()
        flags = [text for pair in self.arguments.items() for text in pair]
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "quafka", self.name, *flags),
            *("--ready-fd", str(ready_write), "--lifeline-fd", str(lifeline_read)),
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=(ready_write, lifeline_read),
            start_new_session=True,
        )
        os.close(ready_write)
        os.close(lifeline_read)
        line = await _read_line(ready_read)
        if line:
            self.ready = json.loads(line)
        return bool(line)

    async def wait(self) -> int:
        """Wait for its end; the exit code."""
        assert self._process is not None
        code = await self._process.wait()
        os.close(self._lifeline)
        return code

    def signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)


async def _read_line(fd: int) -> bytes:
    """What a child says on its pipe; nothing if it ends first."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb")
    )
    try:
        return await asyncio.wait_for(reader.readline(), _START_SECONDS)
    finally:
        transport.close()


def up(effective: Effective[CommonSettings]) -> int:
    """Run both until told to stop; the exit code."""
    config = effective.config
    assert isinstance(config, UpConfig)
    try:
        keys = {name: config.data / f"{name}.key" for name in ("broker", "gateway")}
        ids = {name: Identity.load_or_create(key).node_id for name, key in keys.items()}
    except StartupError as e:
        print(f"quafka: {e}", file=sys.stderr)
        return EXIT_CANNOT_START
    return asyncio.run(_Supervisor(config, keys, ids).run())


class _Supervisor:
    def __init__(self, config: UpConfig, keys: dict[str, Path], ids: dict[str, str]) -> None:
        self._config = config
        self._keys = keys
        self._ids = ids
        self._stop = asyncio.Event()

    async def run(self) -> int:
        """Start, watch, stop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)
        broker = _Child("broker", self._arguments(BrokerConfig, "broker", "gateway"))
        if not await broker.start():
            return await broker.wait() or EXIT_CANNOT_START
        broker.arguments["--mesh-listen"] = broker.ready["mesh"]
        gateway = _Child("gateway", self._arguments(GatewayConfig, "gateway", "broker"))
        gateway.arguments["--mesh-peers"] = broker.ready["mesh"]
        if not await gateway.start():
            code = await gateway.wait()
            await self._end(broker)
            return code or EXIT_CANNOT_START
        gateway.arguments["--listen"] = gateway.ready["listen"]
        self._greet(broker, gateway)
        watchers = [loop.create_task(self._watch(child)) for child in (gateway, broker)]
        await self._stop.wait()
        print("stopping: answering what is under way ...", flush=True)
        for watcher in watchers:
            watcher.cancel()
        await asyncio.wait(watchers)
        for number in (signal.SIGINT, signal.SIGTERM):  # a second Ctrl-C does not wait
            loop.add_signal_handler(number, self._kill, gateway, broker)
        for child in (gateway, broker):
            await self._end(child)
        print("stopped", flush=True)
        return 0

    def _arguments(self, config: type[CommonSettings], me: str, other: str) -> dict[str, str]:
        """A child's flags: everything this command was told that concerns it."""
        mine = declared(UpConfig)
        arguments = {
            flag(name): known.show(getattr(self._config, name))
            for name, known in declared(config).items()
            if name in mine
        }
        arguments["--node-key"] = str(self._keys[me])
        arguments["--mesh-allow"] = self._ids[other]
        return arguments

    def _greet(self, broker: _Child, gateway: _Child) -> None:
        endpoint = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or os.environ.get(
            "OTEL_EXPORTER_OTLP_ENDPOINT"
        )
        print(
            f"Quafka is up.\n"
            f"  Kafka clients   {gateway.ready['listen']}\n"
            f"  data            {self._config.data} (wal.fsync={self._config.wal_fsync})\n"
            f"  mesh            {broker.ready['mesh']}/udp, QUIC, mutual TLS\n"
            f"  traces          {endpoint or 'off (set OTEL_EXPORTER_OTLP_ENDPOINT)'}\n"
            f"Ctrl-C stops both processes.",
            flush=True,
        )

    async def _watch(self, child: _Child) -> None:
        """Start a child again whenever it ends."""
        low, high = _BACKOFF_SECONDS
        pause = low
        while True:
            began = asyncio.get_running_loop().time()
            code = await child.wait()
            print(f"the {child.name} ended with code {code}; starting it again", flush=True)
            if asyncio.get_running_loop().time() - began > high:
                pause = low
            await asyncio.sleep(pause)
            pause = min(high, pause * 2)
            await child.start()

    async def _end(self, child: _Child) -> None:
        child.signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(child.wait(), _STOP_SECONDS)
        except TimeoutError:
            print(f"the {child.name} does not end; killing it", flush=True)
            child.signal(signal.SIGKILL)
            await child.wait()

    @staticmethod
    def _kill(*children: _Child) -> None:
        for child in children:
            child.signal(signal.SIGKILL)
