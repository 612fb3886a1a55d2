"""The `quafka` command."""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from quafka import completion, config_check, exit_codes, logs, manual, node
from quafka.commands import declare
from quafka.commands.declare import Declared
from quafka.flags import add_flags
from quafka.imports import options as import_options
from quafka.parser import Parser
from quafka.settings import PROGRAMS, UpConfig, known_to_any
from quafka.snapshot import options as snapshot_options
from quafka.sources import Effective, SettingError, declared, dotted, load, shown
from quafka.wal import options as wal_options
from quafka_gateway.config import GatewayConfig
from quafka_mesh_ops.settings import CommonSettings
from quafka_telemetry.startup import StartupError
from quafka_telemetry.version import version

if TYPE_CHECKING:
    from quafka.process import Program

FLAGS_ON_STDIN = "--flags-on-stdin"
"""A child's flag: see `supervise.Child`."""

WHAT_IT_IS = "Kafka-compatible log, on a disk or in an object store"
"""Also what pyproject.toml, the Debian package, the container image and the chart say."""
DESCRIPTION = {
    "up": "run a broker, a gateway and the console on this machine",
    "gateway": "run a gateway: serve Kafka clients, through one or several brokers",
    "broker": "run a broker: keep the log, for the gateways on its allow-list",
    "console": "run the web console: topics, messages, groups and traces in a browser",
}

_OF_THE_PARSER = {"completion": completion.run, "help": manual.run}
"""The commands that are made from all others."""
_ON_FILES = {
    "wal": "quafka.wal.run",
    "snapshot": "quafka.snapshot.run",
    "import": "quafka.imports.run",
}
"""The commands that work on files, and their modules, which only they import."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code: 0 done, 1 cannot start, 2 wrong setting or usage."""
    try:
        given = sys.argv[1:] if arguments is None else list(arguments)
        parser = _parser(next((word for word in given if not word.startswith("-")), None))
        options = parser.parse_args(given)
        if getattr(options, "flags_on_stdin", False):
            given.remove(FLAGS_ON_STDIN)
            options = parser.parse_args([*given, *_awaited_flags(options.command)])
        code = _run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes the rest of the buffer at exit; that must not hit the pipe again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.EXIT_NOBODY_READS
    except SettingError as e:
        print(f"quafka: {e}", file=sys.stderr)
        return exit_codes.EXIT_WRONG_SETTING
    except StartupError as e:
        print(f"quafka: {e}", file=sys.stderr)
        return exit_codes.EXIT_CANNOT_START
    except KeyboardInterrupt:  # before a program has installed its signal handlers
        return exit_codes.EXIT_INTERRUPTED
    return code


def _awaited_flags(program: str) -> list[str]:
    """Load a program, and wait for its flags. Ends the process if its parent has none for it."""
    gc.disable()  # an import makes no garbage, and a sixth of its time would be collections
    with suppress(ModuleNotFoundError):  # an extra is missing: `_console` names it
        import_module(f"quafka_{program}.server")
    gc.enable()
    flags = sys.stdin.read()
    if not flags:
        sys.exit(0)
    found: list[str] = json.loads(flags)
    return found


class _Version(argparse.Action):
    def __call__(self, *_args: Any) -> None:
        print(f"quafka {version()}")
        sys.exit(0)


def _parser(asked: str | None = None) -> Parser:
    """The parser. `asked`: the only command whose flags are needed: each has up to 200."""
    parser = Parser(prog="quafka", description=WHAT_IT_IS)
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for each in _commands():
        command = commands.add_parser(
            each.name, help=each.what, description=each.what,
            allow_abbrev=each.allow_abbrev, add_help=each.add_help,
        )  # fmt: skip
        if asked in (None, each.name):
            each.add(command)
    return parser


def _commands() -> Iterator[Declared]:
    for name, config in PROGRAMS.items():
        add = partial(_add_program, config)
        yield Declared(name, DESCRIPTION[name], add, allow_abbrev=False, add_help=False)
    yield Declared(
        "config", "print or check settings: their values, sources and errors", _add_config
    )
    yield Declared("wal", wal_options.WHAT, wal_options.add_actions)
    yield Declared("snapshot", snapshot_options.WHAT, snapshot_options.add_actions)
    yield Declared("import", import_options.WHAT, import_options.add_flags, allow_abbrev=False)
    yield Declared("node", node.WHAT, node.add_actions)
    yield from declare.commands()
    yield Declared("completion", completion.WHAT, completion.add_flags)
    yield Declared("help", manual.WHAT, manual.add_flags)


def _add_program(config: type[CommonSettings], command: argparse.ArgumentParser) -> None:
    add_flags(command, config)
    command.add_argument("--ready-fd", type=int, help=argparse.SUPPRESS)
    command.add_argument("--lifeline-fd", type=int, help=argparse.SUPPRESS)
    command.add_argument("--listening-fd", type=int, help=argparse.SUPPRESS)
    if config is not UpConfig:
        command.add_argument(FLAGS_ON_STDIN, action="store_true", help=argparse.SUPPRESS)


def _add_config(command: argparse.ArgumentParser) -> None:
    programs = command.add_subparsers(dest="program", required=True, metavar="PROGRAM")
    for name, config in PROGRAMS.items():
        what = f"settings of quafka {name}"
        program = programs.add_parser(
            name, help=what, description=what, allow_abbrev=False, add_help=False
        )
        add_flags(program, config)
    what = config_check.WHAT
    config_check.add_flags(
        programs.add_parser("check", help=what, description=what, allow_abbrev=False)
    )


def _run(options: argparse.Namespace) -> int:
    if options.command == "node":
        return node.run(options)
    if options.command in _ON_FILES:
        code: int = import_module(_ON_FILES[options.command]).run(options)
        return code
    if options.command in declare.CLIENTS:
        return declare.run(options)
    if options.command == "config" and options.program == "check":
        return config_check.run(options)
    if options.command in _OF_THE_PARSER:
        return _OF_THE_PARSER[options.command](options, _parser())
    name = options.program if options.command == "config" else options.command
    effective = load(PROGRAMS[name], vars(options), known_elsewhere=known_to_any())
    if options.command == "config":
        _print_config(effective)
        return 0
    config = effective.config
    logs.configure(config.log_level, config.log_format)
    if name == "up":
        from quafka.up import up

        up(effective)
    if isinstance(config, GatewayConfig) and config.workers > 1:
        from quafka.workers import serve

        serve(config, options.ready_fd, options.lifeline_fd)
    return _run_program(name, config, options)


def _run_program(name: str, config: CommonSettings, options: argparse.Namespace) -> int:
    # Imported late, so that neither program loads the other.
    from quafka import process
    from quafka_telemetry.otlp_metrics import push_from_environment
    from quafka_telemetry.tracer_setup import tracer_from_environment

    try:
        edge = config.sampling if isinstance(config, GatewayConfig) else None
        tracer = tracer_from_environment(f"quafka-{name}", edge)
    except ValueError as e:
        raise SettingError(str(e)) from e
    program: Program
    if name == "broker":
        from quafka_broker.config.settings import BrokerConfig
        from quafka_broker.server import Broker

        assert isinstance(config, BrokerConfig)
        program = Broker(config, tracer)
    elif name == "console":
        program = _console(config, options.listening_fd)
    else:
        from quafka_gateway.server import Gateway

        assert isinstance(config, GatewayConfig)
        program = Gateway(config, tracer)
    try:
        push = push_from_environment(f"quafka-{name}", program.metrics)
    except ValueError as e:
        raise SettingError(str(e)) from e
    return process.run(
        program, tracer, options.ready_fd, options.lifeline_fd, push,
        keeps_state=name == "broker", leaves_cycles=name == "console",
    )  # fmt: skip


def _console(config: CommonSettings, listening_fd: int | None) -> Program:
    from quafka.commands.options import UsageError
    from quafka.commands.security import load as load_security
    from quafka_client.errors import ClientError
    from quafka_console.settings import ConsoleConfig

    assert isinstance(config, ConsoleConfig)
    try:
        from quafka_console.server import ConsoleServer
    except ModuleNotFoundError as e:
        raise StartupError(
            f"the console needs {e.name}, which is not installed; pip install 'quafka[console]'"
        ) from e
    try:
        loaded = load_security(config.console_command_config, others_sign_in=True)
    except (UsageError, ClientError) as e:
        raise SettingError(str(e)) from e
    return ConsoleServer(config, loaded.security, listening_fd, loaded.token_claim)


def _print_config(effective: Effective[CommonSettings]) -> None:
    known = declared(type(effective.config))
    rows = [
        (dotted(name), shown(name, known[name], getattr(effective.config, name)) or "-", source)
        for name, source in effective.sources.items()
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    for name, value, source in rows:
        print(f"{name:{widths[0]}}  {value:{widths[1]}}  {source}")
