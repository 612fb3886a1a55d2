"""The console of `quafka up`: whether it runs, where it listens, and what it gets."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from quafka import workers
from quafka.plan import PlannedChild
from quafka.settings import ALWAYS, NEVER, UpConfig
from quafka.sources import DEFAULT, Effective, SettingError
from quafka_console.listening import listen
from quafka_gateway.listeners import ANY_ADDRESS, KafkaListener
from quafka_mesh_ops.settings import CommonSettings, join_address, split_address
from quafka_telemetry.otlp_environment import endpoint
from quafka_telemetry.startup import StartupError

NAME = "console"
INSTALL = "pip install 'quafka[console]'"
_SPANS_PER_SECOND = 100
"""The default of trace.spans.per.second if traces go to the console: see docs/traces.md."""


@dataclass(frozen=True, slots=True)
class UpConsole:
    """The console's listening socket. It exists from the start on, so that the other programs have
    its address: what they send waits until the console is there.

    Attributes:
        address: host:port where it listens.
        fd: the socket, which the processes that follow inherit.
        traces_token_file: tokens of those who may export traces to it; None: anyone may.
    """

    address: str
    fd: int
    traces_token_file: Path | None = None

    @property
    def url(self) -> str:
        """The address for a browser on this host, without a slash at its end."""
        host, port = split_address(self.address)
        return f"http://{join_address('localhost' if host in ANY_ADDRESS else host, port)}"


def open_console(effective: Effective[CommonSettings]) -> UpConsole | None:
    """Listen for the console, if it shall run.

    Raises:
        StartupError: it shall, and is not installed; or its address cannot be used.
        OSError: the file of the token for traces cannot be written.
    """
    config = effective.config
    assert isinstance(config, UpConfig)
    if config.console == NEVER:
        return None
    if find_spec("nicegui") is None:
        if config.console == ALWAYS:
            raise StartupError(f"console = true, and the console is not installed; {INSTALL}")
        return None
    address = config.console_listen
    default = effective.sources["console_listen"] == DEFAULT
    if default and address in _operations(config):
        address = join_address(split_address(address)[0], 0)
    listening = listen(address, fallback=default)
    host, port = listening.getsockname()[:2]
    listening.set_inheritable(True)
    fd = listening.detach()
    return UpConsole(join_address(host, port), fd, _traces_token_file(config))


def _traces_token_file(config: UpConfig) -> Path | None:
    """The file of tokens for exports. Where people sign in there has to be one: write it anew."""
    file = config.console_traces_token_file
    if file is not None or not _listener(config).protocol.sasl:
        return file
    file = config.folder / "console-traces.token"
    replacement = file.with_suffix(".new")
    with open(replacement, "w", opener=_private) as made:
        made.write(f"{secrets.token_urlsafe(32)}\n")
    replacement.replace(file)
    return file


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_TRUNC, 0o600)


def _operations(config: UpConfig) -> Sequence[str]:
    """The operations addresses of the gateways."""
    numbers = range(config.workers)
    return [workers.numbered(config.gateway_ops_listen, number) for number in numbers]


def console_child(
    config: UpConfig, console: UpConsole, flags: Mapping[str, str], others: Sequence[str]
) -> PlannedChild:
    """The console as a child.

    Args:
        flags: the settings that it has in common with this command.
        others: the names of the broker and the gateways; the first gateway is the second.

    Raises:
        SettingError: console.command.config cannot be used.
        StartupError: no listener has its protocol.
    """
    listener = _listener(config)
    scheme = "http" if config.ops_ssl_certfile is None else "https"
    operations = [f"{scheme}://{{{name}/operations}}" for name in others]
    given = config.console_command_config is not None
    files = {
        "--console-traces-token-file": console.traces_token_file,
        "--console-operations-token-file": config.console_operations_token_file
        or config.ops_token_file,
    }
    mine = {name: str(file) for name, file in files.items() if file is not None}
    return PlannedChild(
        NAME,
        NAME,
        {
            **flags,
            **mine,
            "--console-listen": console.address,
            "--console-trace-url": config.ops_trace_url,
        },
        composed={
            "--console-brokers": f"{{{others[1]}/advertised_listeners/{listener.name}}}",
            "--console-operations": ",".join(operations),
        },
        environment={} if given else {"QUAFKA_SECURITY_PROTOCOL": listener.protocol},
        listening_fd=console.fd,
    )


def _listener(config: UpConfig) -> KafkaListener:
    """The listener that the console connects to: the first of the protocol of its properties file.
    Without a file the first that needs no login, one on loopback before others; else the first of
    all, where people sign in."""
    table = config.listener_table()
    if config.console_command_config is None:
        open_to_all = [each for each in table if not each.protocol.sasl and each.tls is None]
        return min(open_to_all, key=lambda each: not each.loopback, default=table[0])
    # Imported late: it loads OpenSSL.
    from quafka.commands.options import UsageError
    from quafka.commands.security import load
    from quafka_client.errors import ClientError

    try:
        protocol = load(config.console_command_config, others_sign_in=True).security.protocol
    except (UsageError, ClientError) as e:
        raise SettingError(str(e)) from e
    for each in table:
        if each.protocol.value == protocol.value:
            return each
    raise StartupError(
        f"no listener has the security.protocol of console.command.config, which is {protocol}"
    )


def traced(
    child: PlannedChild,
    console: UpConsole,
    sources: Mapping[str, str],
    environment: Mapping[str, str] = os.environ,
) -> PlannedChild:
    """A program that sends its traces to the console, if no other collector is configured, and
    links to its page of a trace, unless these settings have been set."""
    if endpoint(environment, "TRACES"):
        return child
    flags = {
        "ops_trace_url": ("--ops-trace-url", f"{console.url}/trace?id={{trace_id}}"),
        "trace_spans_per_second": ("--trace-spans-per-second", str(_SPANS_PER_SECOND)),
    }
    mine = {
        flag: value
        for name, (flag, value) in flags.items()
        if sources[name] == DEFAULT and flag in child.flags
    }
    variables = {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{console.url}/v1/traces",
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
    }
    if console.traces_token_file is not None:
        token = console.traces_token_file.read_text().split("\n", 1)[0].strip()
        variables["OTEL_EXPORTER_OTLP_TRACES_HEADERS"] = f"Authorization=Bearer%20{quote(token)}"
    return PlannedChild(
        child.name, child.program, {**child.flags, **mine}, child.reported, environment=variables
    )
