"""`quafka up`: a broker and a gateway process on this machine, looked after until Ctrl-C.

This process makes both identities, each allowed by the other alone, and stays light: it loads
neither the mesh nor the SDK for traces.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from quafka import workers
from quafka.process import EXIT_CANNOT_START, TRACING
from quafka.settings import UpConfig
from quafka.sources import Effective, declared, flag
from quafka.supervise import Child, say, supervise
from quafka_broker.config import BrokerConfig
from quafka_gateway.config import GatewayConfig
from quafka_mesh_ops.identity import Identity
from quafka_mesh_ops.settings import CommonSettings
from quafka_telemetry.startup import StartupError


def up(effective: Effective[CommonSettings]) -> int:
    """Run both until told to stop; the exit code."""
    config = effective.config
    assert isinstance(config, UpConfig)
    try:
        keys = {name: config.data / f"{name}.key" for name in ("broker", "gateway")}
        ids = {name: Identity.load_or_create(key).node_id for name, key in keys.items()}
        broker, *gateways = _children(config, keys, ids)
    except StartupError as e:
        print(f"quafka: {e}", file=sys.stderr)
        return EXIT_CANNOT_START
    greet = partial(_greet, config, broker, gateways)
    return asyncio.run(supervise((broker, *gateways), greet))


def _children(config: UpConfig, keys: dict[str, Path], ids: dict[str, str]) -> list[Child]:
    """The broker, and the gateways, which connect to where the broker says it is.

    Raises:
        StartupError: somebody else listens where several gateways are to.
    """

    def broker_arguments() -> dict[str, str]:
        return {
            **_shared(config, BrokerConfig),
            "--mesh-listen": broker.ready.get("mesh", config.mesh_listen),
            "--ops-listen": broker.ready.get("operations", config.broker_ops_listen),
            "--mesh-allow": ids["gateway"],
            "--mesh-allowed-file": "",
            "--node-key": str(keys["broker"]),
        }

    def gateway_arguments() -> dict[str, str]:
        return {
            **_shared(config, GatewayConfig),
            "--mesh-peers": broker.ready["mesh"],
            "--mesh-routes": "",
            "--mesh-allow": ids["broker"],
            "--mesh-allowed-file": "",
            "--node-key": str(keys["gateway"]),
        }

    quafka = (sys.executable, "-m", "quafka")
    broker = Child("broker", (*quafka, "broker"), broker_arguments)
    gateways = workers.gateways(
        config.workers, config.listen, config.gateway_ops_listen, gateway_arguments
    )
    return [broker, *gateways]


def _shared(config: UpConfig, program: type[CommonSettings]) -> dict[str, str]:
    """Flags for everything this command was told that concerns the program.

    All are given, so that no variable or file that the child sees as well can differ.
    """
    mine = declared(UpConfig)
    return {
        flag(name): known.show(getattr(config, name))
        for name, known in declared(program).items()
        if name in mine
    }


def _greet(config: UpConfig, broker: Child, gateways: Sequence[Child]) -> None:
    gateway = gateways[0]
    endpoint = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or os.environ.get(
        "OTEL_EXPORTER_OTLP_ENDPOINT"
    )
    traces = endpoint or "off (set OTEL_EXPORTER_OTLP_ENDPOINT)"
    if endpoint and TRACING not in gateway.ready:
        traces = "off (by an OTEL_ variable)"
    listen, advertised = gateway.ready["listen"], gateway.ready["advertised"]
    told = "" if advertised == listen else f" (told to clients as {advertised})"
    pages = [(one.ready["operations"], one.name) for one in (*gateways, broker)]
    status = "\n                  ".join(f"http://{at}/statusz ({name})" for at, name in pages)
    say(
        f"Quafka is up.\n"
        f"  Kafka clients   {listen}{told}\n"
        f"  data            {config.data} (wal.fsync={config.wal_fsync})\n"
        f"  mesh            {broker.ready['mesh']}/udp, QUIC, mutual TLS\n"
        f"  status          {status}\n"
        f"  traces          {traces}\n"
        f"Ctrl-C stops {'both' if config.workers == 1 else 'all'} processes."
    )
