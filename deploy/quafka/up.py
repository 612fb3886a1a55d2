"""`quafka up`: a broker, a gateway and the console on this machine until Ctrl-C.

This process creates the identities of broker and gateway; each allows only the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from quafka import workers
from quafka.greetings import UpGreeting
from quafka.plan import Plan, PlannedChild, supervise_instead
from quafka.settings import NEVER, UpConfig
from quafka.sources import DEFAULT, Effective, declared, flag
from quafka.up_console import INSTALL, UpConsole, console_child, open_console, traced
from quafka_broker.config.settings import BrokerConfig
from quafka_console.settings import ConsoleConfig
from quafka_gateway.config import GatewayConfig
from quafka_mesh_ops.identity import Identity
from quafka_mesh_ops.settings import CommonSettings


def up(effective: Effective[CommonSettings]) -> NoReturn:
    """Run them until Ctrl-C or SIGTERM.

    Raises:
        StartupError: they cannot start.
    """
    config = effective.config
    assert isinstance(config, UpConfig)
    keys = {name: config.folder / f"{name}.key" for name in ("broker", "gateway")}
    ids = {name: Identity.load_or_create(key).node_id for name, key in keys.items()}
    supervise_instead(plan(effective, keys, ids, open_console(effective)))


def plan(
    effective: Effective[CommonSettings],
    keys: Mapping[str, Path],
    ids: Mapping[str, str],
    console: UpConsole | None = None,
) -> Plan:
    """The broker, and the gateways, which connect to the address in the broker's ready report; the
    console, which starts when they are ready.

    Any free port replaces a default operations port that is in use; a configured one is required.

    Raises:
        StartupError: the address that several gateways shall share is in use, or the console has
            no listener.
        SettingError: console.command.config cannot be used.
    """
    config = effective.config
    assert isinstance(config, UpConfig)

    def fallback(name: str) -> str:
        return "true" if effective.sources[name] == DEFAULT else "false"

    broker = PlannedChild(
        "broker",
        "broker",
        {
            **_shared(config, BrokerConfig),
            "--mesh-listen": config.mesh_listen,
            "--ops-listen": config.broker_ops_listen,
            "--ops-port-fallback": fallback("broker_ops_listen"),
            "--mesh-allow": ids["gateway"],
            "--mesh-allowed-file": "",
            "--node-key": str(keys["broker"]),
        },
        {"--mesh-listen": ("broker", "mesh"), "--ops-listen": ("broker", "operations")},
    )
    gateway_flags = {
        **_shared(config, GatewayConfig),
        "--mesh-peers": "",
        "--brokers": "",
        "--mesh-routes": "",
        "--mesh-allow": ids["broker"],
        "--mesh-allowed-file": "",
        "--node-key": str(keys["gateway"]),
        "--ops-port-fallback": fallback("gateway_ops_listen"),
    }
    reported = {"--brokers" if config.store else "--mesh-peers": ("broker", "mesh")}
    gateways = workers.gateways(config, config.gateway_ops_listen, gateway_flags, reported)
    children = [broker, *gateways]
    names = [each.name for each in children]
    greeting = _greeting(effective, names[1:], console)
    if console is None:
        return Plan(children, greeting)
    children = [traced(each, console, effective.sources) for each in children]
    extra = console_child(config, console, _shared(config, ConsoleConfig), names)
    return Plan(children, greeting, extra=extra)


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


def _greeting(
    effective: Effective[CommonSettings], gateways: list[str], console: UpConsole | None
) -> UpGreeting:
    config = effective.config
    assert isinstance(config, UpConfig)
    table = config.listener_table()
    anonymous = [each for each in table if not each.authenticates]
    here = all(each.loopback for each in anonymous)
    open_to = "on this host" if here else "who reaches it"
    pages = {
        name: workers.numbered(config.gateway_ops_listen, number)
        for number, name in enumerate(gateways)
    }
    return UpGreeting(
        broker="broker",
        gateways=gateways,
        pages={**pages, "broker": config.broker_ops_listen},
        scheme="http" if config.ops_ssl_certfile is None else "https",
        protocols=[each.protocol if each.protocol != each.name else "" for each in table],
        named=bool(config.listeners),
        open_to=open_to if anonymous else "",
        data=_data(config),
        console=console.url if console else "",
        console_note=_console_note(config, console),
    )


def _data(config: UpConfig) -> str:
    """Where the records are, and when they are durable."""
    if config.store is not None:
        return f"{config.store} (keys and copies in {config.cache})"
    return f"{config.data} (wal.fsync={config.wal_fsync})"


def _console_note(config: UpConfig, console: UpConsole | None) -> str:
    """Why the console is not where one expects it."""
    if console is None:
        return "" if config.console == NEVER else f"off ({INSTALL})"
    port = config.console_listen.rpartition(":")[2]
    return "" if port in ("0", console.address.rpartition(":")[2]) else f"port {port} is in use"
