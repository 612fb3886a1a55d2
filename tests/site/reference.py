"""The pages of the reference that are written from the code."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from quafka.cli import _parser
from quafka.manual import _value
from quafka.parser import Parser
from quafka_broker.ops.table import OPS
from quafka_gateway.api import APIS
from quafka_mesh_ops.ops.base import OpCode
from quafka_mesh_ops.rights import NEEDS
from quafka_telemetry import semconv
from tests.site.metrics import Described, families

_NOTE = "This page is made from the code of the version that it describes.\n"


@cache
def reference() -> dict[str, str]:
    """The text of each page, by its path in the site."""
    return {
        "reference/commands.md": "\n".join(_commands()),
        "reference/metrics.md": "\n".join(_metrics()),
        "reference/spans.md": "\n".join(_spans()),
        "reference/apis.md": "\n".join(_apis()),
        "reference/ops.md": "\n".join(_ops()),
    }


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _table(*rows: tuple[str, ...]) -> Iterator[str]:
    yield "| " + " | ".join(rows[0]) + " |"
    yield "|" + " --- |" * len(rows[0])
    for row in rows[1:]:
        yield "| " + " | ".join(row) + " |"
    yield ""


# --- commands -------------------------------------------------------------------------------


def _commands() -> Iterator[str]:
    yield "# Commands\n"
    yield _NOTE
    yield (
        "[The command](../cli.md) has examples and the fields of the JSON output. The programs "
        "`up`, `broker`, `gateway` and `console` have a flag for each setting: "
        "[configuration](../configuration.md) lists them.\n"
    )
    yield from _of_parser(_parser(), depth=1)


def _of_parser(parser: Parser, depth: int) -> Iterator[str]:
    for command in parser.subcommands.values():
        what = command.description or ""
        yield f"{'#' * min(depth + 1, 4)} `{command.prog}`\n"
        yield f"{what[:1].upper()}{what[1:]}.\n"
        if command.has_settings:
            continue
        if not command.subcommands:
            yield f"```text\n{command.format_usage().removeprefix('usage: ').rstrip()}\n```\n"
            yield from _flags(command)
        yield from _of_parser(command, depth + 1)


def _flags(command: Parser) -> Iterator[str]:
    rows = [
        (_names(action), _cell((action.help or "") % {**vars(action), "prog": command.prog}))
        for action in command.actions
        if action.help != argparse.SUPPRESS and action.dest != "help"
    ]
    if rows:
        yield from _table(("argument", ""), *rows)


def _names(action: argparse.Action) -> str:
    value = _value(action)
    if not action.option_strings:
        return _code(value)
    return ", ".join(_code(f"{name} {value}".rstrip()) for name in action.option_strings)


# --- metrics --------------------------------------------------------------------------------


def _metrics() -> Iterator[str]:
    yield "# Metrics\n"
    yield _NOTE
    yield (
        "Every family of the pages `/metrics` and `/metrics/detail`. "
        "[Operations](../operations.md#metrics) explains those that matter most, and "
        "[alerts](../operations.md#dashboard-and-alerts) use some of them. A histogram has the "
        "series `_bucket`, `_sum` and `_count`.\n"
    )
    found = sorted(families())
    for program, title in (("gateway", "Gateway"), ("broker", "Broker"), ("both", "Both programs")):
        yield f"## {title}\n"
        yield from _table(
            ("metric", "type", "labels", ""),
            *(_family(each) for each in found if each.program == program),
        )


def _family(each: Described) -> tuple[str, ...]:
    name = each.name + ("_total" if each.kind == "counter" else "")
    labels = ", ".join(map(_code, each.labels))
    page = " (`/metrics/detail`)" if {"topic", "consumergroup"} & {*each.labels} else ""
    return _code(name), each.kind, labels, _cell(each.help) + page


# --- spans ----------------------------------------------------------------------------------


def _spans() -> Iterator[str]:
    yield "# Spans, events and attributes\n"
    yield _NOTE
    yield (
        f"[Traces](../traces.md) shows how spans belong together. Names of attributes follow "
        f"OpenTelemetry's semantic conventions {semconv.VERSION}; with "
        f"`{semconv.OPT_IN}=messaging`, those of {semconv.NEW_VERSION}.\n"
    )
    source = inspect.getsource(semconv).partition("\nOPERATION_TYPES")[0]
    users = _users()
    for section in re.split(r"\n# --- ", source)[1:]:
        heading, _, body = section.partition("\n")
        title = heading.rstrip(" -").replace("Rafka's", "kept from Rafka, an earlier product")
        yield f"## {title.replace('ours', 'Quafka’s').capitalize()}\n"
        constants = re.findall(r'^([A-Z_]+) = "([^"]+)"$', body, re.MULTILINE)
        yield from _table(
            ("name", "set by"),
            *((_code(name), ", ".join(users.get(constant, ()))) for constant, name in constants),
        )


def _users() -> dict[str, list[str]]:
    """The programs whose code uses each constant of the table."""
    root = Path(__file__).parents[2]
    found: dict[str, list[str]] = {}
    for program, folder in (("gateway", "gateway"), ("broker", "broker"), ("both", "mesh_ops")):
        text = "\n".join(
            file.read_text("utf-8")
            for file in (root / folder).rglob("*.py")
            if file.name != "semconv.py"
        )
        for constant in set(re.findall(r"\bsemconv\.([A-Z_]+)\b", text)):
            found.setdefault(constant, []).append(program)
    return found


# --- APIs and ops ---------------------------------------------------------------------------


def _apis() -> Iterator[str]:
    yield "# Kafka APIs\n"
    yield _NOTE
    yield (
        "The gateway serves these APIs and advertises exactly them. "
        "[Authorization](../security.md#authorization) explains the rights, and "
        "[compatibility](../compatibility.md) lists answers that differ from Apache Kafka's.\n"
    )
    rows = [
        (
            f"{api.name}" + (" (Quafka's tools)" if api.quafka_only else ""), str(key),
            f"{api.versions.low} to {api.versions.high}",
            ", ".join(map(str, api.access)) or ("operators" if api.for_operators else "none"),
        )
        for key, api in APIS.items()
    ]  # fmt: skip
    yield from _table(("API", "key", "versions", "rights"), *rows)


def _ops() -> Iterator[str]:
    yield "# Mesh ops\n"
    yield _NOTE
    yield (
        "Gateways and brokers exchange these ops over QUIC. A node needs the "
        "[right](../configuration.md#what-a-node-may-do) in the third column.\n"
    )
    rows = [
        (_code(code.name), f"0x{code.value:02x}", need.right.value, _first_line(code))
        for code, need in sorted((OpCode(number), need) for number, need in NEEDS.items())
    ]
    yield from _table(("op", "code", "right", "at the broker"), *rows)


def _first_line(code: OpCode) -> str:
    handler = OPS.get(code)
    return _cell((inspect.getdoc(handler) or "").partition("\n")[0]) if handler else ""
