"""Real broker and gateway processes on loopback, to use, restart and kill."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from quafka_gateway.listeners import parse_endpoints
from quafka_mesh_ops.identity import Identity
from quafka_mesh_ops.settings import join_address
from tests.support.forked import Parents, Started
from tests.support.ports import lasting_port


class Linking(Protocol):
    """What stands between a gateway and its broker."""

    @property
    def address(self) -> tuple[str, int]:
        """Where the gateway connects to."""
        ...


L = TypeVar("L", bound=Linking)
_START_SECONDS = 20.0
_STOP_SECONDS = 15.0


class Process:
    """One `quafka` process that says when it is ready; nobody listens if it is killed before."""

    parents: Parents | None = None
    """What forks processes, so that they need not import their modules; None: they do."""

    def __init__(
        self,
        args: list[str],
        log: Path,
        env: Mapping[str, str] | None = None,
        kill_after: float | None = None,
        command: tuple[str, ...] = (),
    ) -> None:
        self.log = log
        read_fd, write_fd = os.pipe()
        usual = self.parents is None or env or command
        parent = None if usual or self.parents is None else self.parents.of(args)
        with log.open("ab") as out:
            self.popen: Started = (
                subprocess.Popen(
                    [*command, sys.executable, "-m", "quafka", *args, "--ready-fd", str(write_fd)],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    pass_fds=[write_fd],
                    env={**os.environ, **(env or {})},
                )
                if parent is None
                else parent.start(args, out.fileno(), write_fd)
            )
        os.close(write_fd)
        self.ready: dict[str, Any] = {}
        if kill_after is None:
            self.ready = self._wait_ready(read_fd)
        else:
            time.sleep(kill_after)
            self.kill()
            os.close(read_fd)

    @property
    def pid(self) -> int:
        return self.popen.pid

    def stop(self) -> int:
        """Ask it to drain; return its exit code."""
        self.popen.send_signal(signal.SIGTERM)
        return self.popen.wait(_STOP_SECONDS)

    def kill(self) -> None:
        """kill -9."""
        self.popen.kill()
        self.popen.wait(_STOP_SECONDS)

    def _wait_ready(self, read_fd: int) -> dict[str, Any]:
        with os.fdopen(read_fd, "rb") as ready:
            line = ready.readline()
        if not line:
            code = self.popen.wait(_START_SECONDS)
            raise AssertionError(f"did not start (exit {code}): {self.log.read_text()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _with_port(_: re.Match[str]) -> str:
    return f":{lasting_port()}"


class Cluster:
    """A broker and a gateway that know each other. Both keep their ports over restarts.

    Attributes:
        in_store: whether the log is in an object store, unless a cluster is told otherwise.
        store: the URL of that store; empty: the log is in the folder `data`.
        data: the broker's local folder.
    """

    in_store = False

    def __init__(
        self,
        folder: Path,
        broker_args: tuple[str, ...] = (),
        gateway_args: tuple[str, ...] = (),
        env: Mapping[str, str] | None = None,
        data: Path | None = None,
        broker_command: tuple[str, ...] = (),
        gateway_command: tuple[str, ...] = (),
        listeners: str = "",
        store: str | None = None,
    ) -> None:
        """Args:
        listeners: the gateway's setting, in place of one PLAINTEXT listener; a port 0 is
            replaced by one that lasts.
        store: None: as `in_store` says, a folder beside `data`.
        """
        self.folder = folder
        self.data = data or folder / "data"
        of_usual = f"file://{folder / 'store'}" if self.in_store and data is None else ""
        self.store = of_usual if store is None else store
        self._of_usual = bool(of_usual) and store is None
        self._args = {"broker": list(broker_args), "gateway": list(gateway_args)}
        self.env = env
        self._commands = {"broker": broker_command, "gateway": gateway_command}
        self._keys = {name: folder / f"{name}.key" for name in ("broker", "gateway")}
        self._ids = {name: Identity.load_or_create(key).node_id for name, key in self._keys.items()}
        self._mesh = f"127.0.0.1:{lasting_port(socket.SOCK_DGRAM)}"
        self.mesh_by: tuple[str, int] | None = None
        """Where the gateway is told that the broker is, if not where it really is."""
        self._listen = f"127.0.0.1:{lasting_port()}"
        self._listeners = re.sub(r":0(?=,|$)", _with_port, listeners)
        self._broker: Process | None = None
        self._gateway: Process | None = None

    @property
    def broker(self) -> Process:
        assert self._broker is not None, "not started"
        return self._broker

    @property
    def gateway(self) -> Process:
        assert self._gateway is not None, "not started"
        return self._gateway

    @property
    def bootstrap(self) -> str:
        """host:port for Kafka clients."""
        return self._listen

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listen.rsplit(":", 1)
        return host, int(port)

    def address_of(self, listener: str) -> tuple[str, int]:
        """Where a listener is, by its name."""
        found = {each.name: each for each in parse_endpoints(self._listeners)}
        return found[listener].host, found[listener].port

    @property
    def mesh_address(self) -> tuple[str, int]:
        host, port = self._mesh.rsplit(":", 1)
        return host, int(port)

    @property
    def logs(self) -> str:
        """What both processes have logged."""
        found = [self.folder / f"{name}.log" for name in self._keys]
        return "".join(path.read_text() for path in found if path.exists())

    def start_broker(self) -> None:
        self._broker = self._process("broker", self._broker_args())
        self._mesh = self._broker.ready["mesh"]

    def kill_starting_broker(self, seconds: float) -> None:
        """Start a broker and kill it so many seconds later, ready or not."""
        log = self.folder / "broker.log"
        command = self._commands["broker"]
        Process(self._broker_args(), log, self.env, kill_after=seconds, command=command)

    def _broker_args(self) -> list[str]:
        args = ["broker", "--data", self.store or str(self.data), "--mesh-listen", self._mesh]
        if self.store:
            args += ["--cache", str(self.data), "--wal-object-linger-ms", "2"]
            args += ["--store-shards", "1"]
        args += ["--ops-listen", "127.0.0.1:0"]
        args += ["--mesh-allow", self._ids["gateway"], "--node-key", str(self._keys["broker"])]
        return args + self._args["broker"]

    def start_gateway(self) -> None:
        peer = self._mesh if self.mesh_by is None else join_address(*self.mesh_by)
        listen = ["--listeners", self._listeners] if self._listeners else ["--listen", self._listen]
        # One that follows shards holds requests while the broker takes its shard over.
        follows = self._of_usual and self.mesh_by is None
        args = ["gateway", *listen, "--brokers" if follows else "--mesh-peers", peer]
        args += ["--ops-listen", "127.0.0.1:0"]
        args += ["--mesh-allow", self._ids["broker"], "--node-key", str(self._keys["gateway"])]
        self._gateway = self._process("gateway", args + self._args["gateway"])
        self._listen = self._gateway.ready["listen"]
        if self._listeners:
            self._listeners = self._gateway.ready["listeners"]

    def stop(self) -> None:
        """Drain both; they must exit 0."""
        for process in (self._gateway, self._broker):
            if process is not None and process.popen.poll() is None:
                code = process.stop()
                assert code == 0, f"exit {code}: {process.log.read_text()}"
        self._gateway = self._broker = None

    def run_by(self, program: str, command: tuple[str, ...]) -> None:
        """From the next start on, run "broker" or "gateway" by this command."""
        self._commands[program] = command

    def restart(self) -> None:
        """Stop both and start them on the same ports and data."""
        self.stop()
        self.start_broker()
        self.start_gateway()

    @contextmanager
    def with_link(
        self, between: Callable[[tuple[str, int]], AbstractContextManager[L]]
    ) -> Iterator[L]:
        """Run both with a link between them: `between` makes it, given the broker's address.

        The link's `address` is where the gateway connects to. It outlives both processes, and so
        carries their farewells.
        """
        self.start_broker()
        with between(self.mesh_address) as link:
            self.mesh_by = link.address
            try:
                self.start_gateway()
                yield link
            except BaseException as e:
                self.__exit__(type(e), e, e.__traceback__)
                raise
            self.stop()

    def __enter__(self) -> Self:
        self.start_broker()
        self.start_gateway()
        return self

    def __exit__(self, kind: object, error: object, tb: object) -> None:
        if error is None:
            self.stop()
            return
        for process in (self._gateway, self._broker):
            if process is not None and process.popen.poll() is None:
                process.kill()

    def _process(self, name: str, args: list[str]) -> Process:
        log = self.folder / f"{name}.log"
        return Process(args, log, self.env, command=self._commands[name])
