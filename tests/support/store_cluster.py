"""Brokers and gateways of one object store, real processes on loopback that find each other."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from quafka_mesh_ops.identity import Identity
from quafka_objects.cluster import ClusterState, read_state
from quafka_objects.folder import FolderStore
from tests.support.cluster import Process
from tests.support.ports import lasting_port


class StoreCluster:
    """Brokers and gateways by name. Gateways keep their ports."""

    def __init__(
        self,
        folder: Path,
        *,
        brokers: Sequence[str] = ("a", "b"),
        gateways: Sequence[str] = ("g",),
        shards: int = 4,
        broker_args: tuple[str, ...] = (),
        gateway_args: tuple[str, ...] = (),
        by_address: bool = False,
        url: str = "",
        command: tuple[str, ...] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        """`by_address`: gateways are given one broker's address, in place of the store. `command`
        runs the processes; it can be changed between two starts.
        """
        self.folder = folder
        self.url = url or f"file://{folder / 'store'}"
        self._first = tuple(brokers)
        self._shards = shards
        self._broker_args, self._gateway_args = broker_args, gateway_args
        self._by_address = by_address
        self.command, self._env = command, env
        self.brokers: dict[str, Process] = {}
        self.gateways: dict[str, Process] = {}
        self._gateway_key = folder / "gateways.key"  # they are one node
        self._gateway_id = Identity.create(self._gateway_key).node_id
        self._listen = {name: f"127.0.0.1:{lasting_port()}" for name in gateways}

    # --- processes ------------------------------------------------------------------------------

    def start_broker(self, name: str) -> Process:
        self.brokers[name] = self._process(
            "broker",
            name,
            {
                "--data": self.url,
                "--cache": str(self.folder / f"cache-{name}"),
                "--store-shards": str(self._shards),
                "--wal-object-linger-ms": "2",
                "--mesh-listen": "127.0.0.1:0",
                "--mesh-allow": self._gateway_id,
                "--ops-listen": "127.0.0.1:0",
            },
            self._broker_args,
        )
        return self.brokers[name]

    def start_gateway(self, name: str) -> Process:
        one = next(iter(self.brokers.values()))
        seed = {"--brokers": self.url}
        if self._by_address:
            seed = {"--brokers": one.ready["mesh"], "--mesh-allow": one.ready["node_id"]}
        self.gateways[name] = self._process(
            "gateway",
            name,
            {
                **seed,
                "--listen": self._listen[name],
                "--ops-listen": "127.0.0.1:0",
                "--node-key": str(self._gateway_key),
            },
            self._gateway_args,
        )
        return self.gateways[name]

    def add_gateway(self, name: str) -> Process:
        self._listen[name] = f"127.0.0.1:{lasting_port()}"
        return self.start_gateway(name)

    def _process(
        self, program: str, name: str, flags: dict[str, str], more: tuple[str, ...]
    ) -> Process:
        args = [program, *(part for flag in flags.items() for part in flag), *more]
        log = self.folder / f"{program}-{name}.log"
        return Process(args, log, self._env, command=self.command)

    def drain(self, name: str) -> None:
        """Stop a broker as an operator does; it must exit 0."""
        process = self.brokers.pop(name)
        assert process.stop() == 0, process.log.read_text()

    def kill(self, name: str) -> None:
        self.brokers.pop(name).kill()

    def pause(self, name: str) -> None:
        self.brokers[name].popen.send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        self.brokers[name].popen.send_signal(signal.SIGCONT)

    # --- facts ----------------------------------------------------------------------------------

    def bootstrap(self, gateway: str = "g") -> str:
        return self._listen[gateway]

    def address(self, gateway: str = "g") -> tuple[str, int]:
        host, port = self._listen[gateway].rsplit(":", 1)
        return host, int(port)

    def state(self) -> ClusterState:
        """What the store says of the cluster."""
        found = read_state(FolderStore(Path(self.url.removeprefix("file://"))))
        assert found is not None
        return found

    def owners(self) -> list[str]:
        """The name of each shard's owner; "": it has none, or one that is gone."""
        names = {process.ready["node_id"]: name for name, process in self.brokers.items()}
        return [
            names.get(each.owner.node, "") if each is not None and each.owner is not None else ""
            for each in self.state().manifests
        ]

    def page(self, broker: str) -> Any:
        """The address of a broker's operations pages."""
        return self.brokers[broker].ready["operations"]

    def __enter__(self) -> Self:
        for name in self._first:
            self.start_broker(name)
        for name in self._listen:
            self.start_gateway(name)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        failed: list[str] = []
        for process in (*self.gateways.values(), *self.brokers.values()):
            if process.popen.poll() is None:
                process.popen.send_signal(signal.SIGCONT)
                if kind is not None:
                    process.kill()
                elif process.stop() != 0:
                    failed.append(process.log.read_text())
        assert not failed, failed
