"""Several gateway processes on the same addresses, under one node identity, each with its own
connection to the broker. The kernel spreads new connections over them (SO_REUSEPORT).

Their operations ports are consecutive, beginning with the configured one.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import NoReturn

from quafka.greetings import ReadyReport
from quafka.plan import Plan, PlannedChild, supervise_instead
from quafka.sources import declared, flag
from quafka_gateway.config import EdgeSettings, GatewayConfig
from quafka_loop import sockets
from quafka_mesh_ops.settings import join_address, split_address
from quafka_telemetry.startup import StartupError


def gateways(
    config: EdgeSettings,
    operations: str,
    flags: Mapping[str, str],
    reported: Mapping[str, tuple[str, str]] | None = None,
) -> list[PlannedChild]:
    """`config.workers` gateways as children; all listen on the addresses that the first one takes.

    Args:
        flags, reported: all other flags (see `PlannedChild`).

    Raises:
        StartupError: another process listens there, or the settings contradict one another.
    """
    count = config.workers
    table = config.listener_table()
    if count > 1:
        for each in table:
            # With SO_REUSEPORT the bind would succeed even beside another broker's gateways.
            _ensure_free(each.host, each.port)
    listen = "listeners" if config.listeners else "listen"
    names = [f"gateway {number + 1}" if count > 1 else "gateway" for number in range(count)]
    return [
        PlannedChild(
            name,
            "gateway",
            {
                **flags,
                **({"--listen-shared": "true"} if count > 1 else {}),
                "--workers": "1",
                flag(listen): declared(type(config))[listen].show(getattr(config, listen)),
                "--ops-listen": numbered(operations, number),
            },
            {
                **(reported or {}),
                flag(listen): (names[0], listen),
                "--ops-listen": (name, "operations"),
            },
        )
        for number, name in enumerate(names)
    ]


def serve(config: GatewayConfig, ready_fd: int | None, lifeline_fd: int | None) -> NoReturn:
    """Run `quafka gateway --workers N` until SIGTERM, SIGINT or the end of the lifeline.

    Raises:
        StartupError: they cannot start.
    """
    known = declared(GatewayConfig)
    flags = {flag(name): one.show(getattr(config, name)) for name, one in known.items()}
    children = gateways(config, config.ops_listen, flags)
    supervise_instead(Plan(children, ReadyReport(ready_fd), lifeline_fd))


def numbered(address: str, number: int) -> str:
    """The operations address of a gateway, which is the `number`th; port 0 stays 0."""
    host, port = split_address(address)
    return join_address(host, port + number if port else 0)


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
