"""A second gateway at a stage's broker: for a bystander, or for an attack that needs two."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from quafka_gateway.listeners import parse_endpoints
from quafka_mesh_ops.identity import Identity
from tests.support.cluster import Cluster, Process

_KEY = "another-gateway.key"


def allowed_gateways(folder: Path) -> tuple[str, ...]:
    """The broker's arguments that allow a stage's gateway and another one."""
    keys = (folder / "gateway.key", folder / _KEY)
    return ("--mesh-allow", ",".join(Identity.load_or_create(key).node_id for key in keys))


class AnotherGateway:
    """A second gateway at the same broker, on ports of its own; a context manager."""

    def __init__(
        self,
        cluster: Cluster,
        arguments: tuple[str, ...],
        listeners: str,
        env: Mapping[str, str] | None,
    ) -> None:
        args = ["gateway", "--listeners", listeners, "--ops-listen", "127.0.0.1:0"]
        args += ["--mesh-peers", cluster.broker.ready["mesh"]]
        args += ["--mesh-allow", cluster.broker.ready["node_id"]]
        args += ["--node-key", str(cluster.folder / _KEY), *arguments]
        self.process = Process(args, cluster.folder / "another-gateway.log", env)

    def address_of(self, listener: str) -> tuple[str, int]:
        """Where a listener is, by its name."""
        found = {each.name: each for each in parse_endpoints(self.process.ready["listeners"])}
        return found[listener].host, found[listener].port

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.process.kill()
