"""Several brokers and gateways, real processes on loopback, that all know each other."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from quafka_mesh_ops.identity import Identity
from tests.support.cluster import Process
from tests.support.ports import lasting_port


class Fleet:
    """Brokers by name, and gateways that share a route table. Brokers keep their ports."""

    def __init__(
        self,
        folder: Path,
        routes: Sequence[tuple[str, str]],
        gateways: Sequence[str] = ("g",),
        broker_args: tuple[str, ...] = (),
        *,
        spanned: bool = False,
    ) -> None:
        """`routes`: pattern and broker name, in order. `spanned`: transactions span the brokers."""
        self._broker_args = broker_args
        self.folder = folder
        self.brokers: dict[str, Process] = {}
        self.gateways: dict[str, Process] = {}
        self._routes = routes
        self._broker_names = sorted({broker for _, broker in routes})
        self._mesh = dict.fromkeys(self._broker_names, "127.0.0.1:0")
        self._gateway_names = gateways
        names = (*self._broker_names, *gateways)
        self._ids = {name: Identity.create(self._key(name)).node_id for name in names}
        if spanned:
            self._mesh = {
                name: f"127.0.0.1:{lasting_port(socket.SOCK_DGRAM)}" for name in self._broker_names
            }
            brokers = (f"{self._ids[name]}@{where}" for name, where in self._mesh.items())
            self._broker_args += ("--mesh-brokers", ",".join(brokers))

    def address(self, gateway: str = "g") -> tuple[str, int]:
        host, port = self.bootstrap(gateway).rsplit(":", 1)
        return host, int(port)

    def bootstrap(self, gateway: str = "g") -> str:
        listen: str = self.gateways[gateway].ready["listen"]
        return listen

    def start_broker(self, name: str) -> None:
        allowed = ",".join(self._ids[gateway] for gateway in self._gateway_names)
        self.brokers[name] = self._process(
            "broker",
            name,
            {
                "--data": str(self.folder / f"data-{name}"),
                "--mesh-listen": self._mesh[name],
                "--mesh-allow": allowed,
            },
            self._broker_args,
        )
        self._mesh[name] = self.brokers[name].ready["mesh"]

    def start_gateway(self, name: str) -> None:
        rules = [f"{pattern} = {self._mesh[broker]}" for pattern, broker in self._routes]
        self.gateways[name] = self._process(
            "gateway",
            name,
            {
                "--listen": "127.0.0.1:0",
                "--mesh-routes": ", ".join(rules),
                "--mesh-allow": ",".join(self._ids[broker] for broker in self._broker_names),
            },
        )

    def __enter__(self) -> Self:
        for name in self._broker_names:
            self.start_broker(name)
        for name in self._gateway_names:
            self.start_gateway(name)
        return self

    def __exit__(self, kind: object, error: object, tb: object) -> None:
        for process in (*self.gateways.values(), *self.brokers.values()):
            if process.popen.poll() is not None:
                continue
            if error is not None:
                process.kill()
            else:
                assert process.stop() == 0, process.log.read_text()

    def _key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def _process(
        self, program: str, name: str, flags: Mapping[str, str], more: tuple[str, ...] = ()
    ) -> Process:
        flags = {**flags, "--node-key": str(self._key(name)), "--ops-listen": "127.0.0.1:0"}
        args = [program, *(word for flag in flags.items() for word in flag), *more]
        return Process(args, self.folder / f"{name}.log")
