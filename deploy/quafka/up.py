"""`quafka up`: supervises a broker and a gateway on this machine until Ctrl-C.

This process creates both identities; each program allows only the other. It stays small: it loads
neither the mesh nor the tracing SDK.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from quafka import workers
from quafka.process import EXIT_CANNOT_START, TRACING
from quafka.settings import UpConfig
from quafka.sources import DEFAULT, Effective, declared, flag
from quafka.supervise import Child, say, supervise
from quafka_broker.config.settings import BrokerConfig
from quafka_gateway.config import GatewayConfig
from quafka_gateway.listeners import parse_endpoints
from quafka_mesh_ops.identity import Identity
from quafka_mesh_ops.settings import CommonSettings, join_address, split_address
from quafka_telemetry.startup import StartupError


def up(effective: Effective[CommonSettings]) -> int:
    """Run both until Ctrl-C or SIGTERM; return the exit code."""
    config = effective.config
    assert isinstance(config, UpConfig)
    try:
        keys = {name: config.folder / f"{name}.key" for name in ("broker", "gateway")}
        ids = {name: Identity.load_or_create(key).node_id for name, key in keys.items()}
        broker, *gateways = children(effective, keys, ids)
    except StartupError as e:
        print(f"quafka: {e}", file=sys.stderr)
        return EXIT_CANNOT_START
    return asyncio.run(supervise((broker, *gateways), partial(greet, config, broker, gateways)))


def children(
    effective: Effective[CommonSettings], keys: Mapping[str, Path], ids: Mapping[str, str]
) -> list[Child]:
    """The broker, and the gateways, which connect to the address in the broker's ready report.

    Any free port replaces a default operations port that is in use; a configured one is required.

    Raises:
        StartupError: the address that several gateways shall share is in use.
    """
    config = effective.config
    assert isinstance(config, UpConfig)

    def fallback(name: str) -> str:
        return "true" if effective.sources[name] == DEFAULT else "false"

    def broker_arguments() -> dict[str, str]:
        return {
            **_shared(config, BrokerConfig),
            "--mesh-listen": broker.ready.get("mesh", config.mesh_listen),
            "--ops-listen": broker.ready.get("operations", config.broker_ops_listen),
            "--ops-port-fallback": fallback("broker_ops_listen"),
            "--mesh-allow": ids["gateway"],
            "--mesh-allowed-file": "",
            "--node-key": str(keys["broker"]),
        }

    def gateway_arguments() -> dict[str, str]:
        return {
            **_shared(config, GatewayConfig),
            "--mesh-peers": "" if config.store else broker.ready["mesh"],
            "--brokers": broker.ready["mesh"] if config.store else "",
            "--mesh-routes": "",
            "--mesh-allow": ids["broker"],
            "--mesh-allowed-file": "",
            "--node-key": str(keys["gateway"]),
            "--ops-port-fallback": fallback("gateway_ops_listen"),
        }

    quafka = (sys.executable, "-m", "quafka")
    broker = Child("broker", (*quafka, "broker"), broker_arguments)
    gateways = workers.gateways(config, config.gateway_ops_listen, gateway_arguments)
    return [broker, *gateways]


def _shared(config: UpConfig, program: type[CommonSettings]) -> dict[str, str]:
    """This command's settings as flags of a program, without those that the program lacks.

    Every flag is given, because a flag wins over the child's environment and file.
    """
    mine = declared(UpConfig)
    return {
        flag(name): known.show(getattr(config, name))
        for name, known in declared(program).items()
        if name in mine
    }


def greet(config: UpConfig, broker: Child, gateways: Sequence[Child]) -> None:
    """Print the addresses of programs that are ready."""
    gateway = gateways[0]
    endpoint = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or os.environ.get(
        "OTEL_EXPORTER_OTLP_ENDPOINT"
    )
    traces = endpoint or "off (set OTEL_EXPORTER_OTLP_ENDPOINT)"
    if endpoint and TRACING not in gateway.ready:
        traces = "off (by an OTEL_ variable)"
    clients = "\n                  ".join(_clients(config, gateway.ready))
    scheme = "http" if config.ops_ssl_certfile is None else "https"
    wanted = {id(broker): config.broker_ops_listen} | {
        id(each): workers.numbered(config.gateway_ops_listen, number)
        for number, each in enumerate(gateways)
    }
    status = "\n                  ".join(
        f"{scheme}://{each.ready['operations']}/statusz ({each.name}"
        f"{_instead(wanted[id(each)], each.ready['operations'])})"
        for each in (*gateways, broker)
    )
    say(
        f"Quafka is up.\n"
        f"  Kafka clients   {clients}\n"
        f"  data            {_data(config)}\n"
        f"  mesh            {broker.ready['mesh']}/udp, QUIC, mutual TLS\n"
        f"  status          {status}\n"
        f"  traces          {traces}\n"
        f"Ctrl-C stops {'both' if config.workers == 1 else 'all'} processes."
    )


def _instead(wanted: str, found: str) -> str:
    """Why the operations port is not the wanted one; empty if it is."""
    port = split_address(wanted)[1]
    if port in (0, split_address(found)[1]):
        return ""
    return f"; port {port} is in use"


def _data(config: UpConfig) -> str:
    """Where the records are, and when they are durable."""
    if config.store is not None:
        return f"{config.store} (keys and copies in {config.cache})"
    return f"{config.data} (wal.fsync={config.wal_fsync})"


def _clients(config: UpConfig, ready: Mapping[str, str]) -> Iterator[str]:
    """The lines about listeners: their addresses, and who may connect."""
    table = config.listener_table()
    bound = parse_endpoints(ready["listeners"])
    advertised = parse_endpoints(ready["advertised_listeners"])
    for listener, at, told in zip(table, bound, advertised, strict=True):
        shown = str(at) if config.listeners else join_address(at.host, at.port)
        if listener.protocol != listener.name:
            shown += f" ({listener.protocol})"
        also = "" if at == told else f" (advertised as {join_address(told.host, told.port)})"
        yield shown + also
    anonymous = [each for each in table if not each.authenticates]
    if anonymous:
        here = all(each.loopback for each in anonymous)
        yield f"open to everyone {'on this host' if here else 'who reaches it'}: no authentication"
