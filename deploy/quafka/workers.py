"""Several gateway processes on the same addresses, under one node identity, each with its own
connection to the broker. The kernel spreads new connections over them (SO_REUSEPORT).

Their operations ports are consecutive, beginning with the configured one.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping

from quafka.process import EXIT_CANNOT_START
from quafka.sources import declared, flag
from quafka.supervise import Child, say, supervise
from quafka_gateway.config import EdgeSettings, GatewayConfig
from quafka_loop import sockets
from quafka_mesh_ops.settings import join_address, split_address
from quafka_telemetry.startup import StartupError


def gateways(
    config: EdgeSettings, operations: str, arguments: Callable[[], Mapping[str, str]]
) -> list[Child]:
    """`config.workers` gateways as children; all listen on the addresses that the first one takes.

    Args:
        arguments: all other flags. Called before each start.

    Raises:
        StartupError: another process listens there, or the settings contradict one another.
    """
    count = config.workers
    table = config.listener_table()
    if count > 1:
        for each in table:
            # With SO_REUSEPORT the bind would succeed even beside another broker's gateways.
            _ensure_free(each.host, each.port)
    listen = _shown(config, "listeners" if config.listeners else "listen")
    children: list[Child] = []
    for number in range(count):
        name = f"gateway {number + 1}" if count > 1 else "gateway"
        own = numbered(operations, number)
        children.append(_child(name, children, number, count, listen, own, arguments))
    return children


def _child(
    name: str,
    children: list[Child],
    number: int,
    count: int,
    listen: tuple[str, str],
    operations: str,
    arguments: Callable[[], Mapping[str, str]],
) -> Child:
    setting, addresses = listen

    def all_arguments() -> dict[str, str]:
        shared = {"--listen-shared": "true"} if count > 1 else {}
        return {
            **arguments(),
            **shared,
            "--workers": "1",
            flag(setting): children[0].ready.get(setting, addresses),
            "--ops-listen": children[number].ready.get("operations", operations),
        }

    return Child(name, (sys.executable, "-m", "quafka", "gateway"), all_arguments)


def serve(config: GatewayConfig, ready_fd: int | None, lifeline_fd: int | None) -> int:
    """Run `quafka gateway --workers N` until SIGTERM, SIGINT or the end of the lifeline."""
    known = declared(GatewayConfig)
    flags = {flag(name): one.show(getattr(config, name)) for name, one in known.items()}
    try:
        children = gateways(config, config.ops_listen, lambda: flags)
    except StartupError as e:
        print(f"quafka: {e}", file=sys.stderr)
        return EXIT_CANNOT_START

    def greet() -> None:
        operations = ", ".join(child.ready["operations"] for child in children)
        about = {
            **children[0].ready,
            "operations": operations,
            "workers": str(config.workers),
        }
        if ready_fd is None:
            say("ready: " + ", ".join(f"{key} {value}" for key, value in about.items()))
            return
        with os.fdopen(ready_fd, "w") as out:
            out.write(json.dumps(about) + "\n")

    async def run() -> int:
        if lifeline_fd is not None:
            asyncio.get_running_loop().add_reader(lifeline_fd, _lifeline_ended, lifeline_fd)
        return await supervise(children, greet)

    return asyncio.run(run())


def _lifeline_ended(fd: int) -> None:
    """The parent process has ended: drain."""
    if not os.read(fd, 64):
        asyncio.get_running_loop().remove_reader(fd)
        os.kill(os.getpid(), signal.SIGTERM)


def numbered(address: str, number: int) -> str:
    """The operations address of a gateway, which is the `number`th; port 0 stays 0."""
    host, port = split_address(address)
    return join_address(host, port + number if port else 0)


def _shown(config: EdgeSettings, name: str) -> tuple[str, str]:
    """A setting and its value as text."""
    return name, declared(type(config))[name].show(getattr(config, name))


def _ensure_free(host: str, port: int) -> None:
    try:
        found = sockets.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, protocol, _, where in found:
            with sockets.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(where)
    except OSError as e:
        raise StartupError(f"cannot listen on {join_address(host, port)}: {e.strerror or e}") from e
