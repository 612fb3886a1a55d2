"""The flags that all client commands share, and the parsers of their values."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from quafka.sources import BROKERS_VARIABLE as VARIABLE
from quafka.sources import COMMAND_CONFIG_VARIABLE, REGISTRY_VARIABLE
from quafka_client import json_path
from quafka_client.positions import RequestedPosition
from quafka_client.registry import address
from quafka_loop import clock
from quafka_mesh_ops.settings import split_address
from quafka_mesh_ops.units import MS, plain

DEFAULT = "localhost:9092"
_KAFKA_PORT = 9092


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Declare --brokers, --command-config and --timeout."""
    parser.add_argument(
        "-b", "--brokers", "--bootstrap-server", metavar="HOST:PORT[,...]", type=brokers,
        help=f"where to connect (default: ${VARIABLE}, or {DEFAULT})",
    )  # fmt: skip
    parser.add_argument(
        "--command-config", metavar="FILE", type=Path,
        help="how to connect and log in, as Kafka's properties (default: "
        f"${COMMAND_CONFIG_VARIABLE})",
    )  # fmt: skip
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=seconds, default=10.0,
        help="the limit for each connection and each answer (default: 10)",
    )  # fmt: skip


def add_format(
    parser: argparse.ArgumentParser, what: str = "text for people, json for programs"
) -> None:
    """Declare --format."""
    parser.add_argument("--format", choices=("text", "json"), default="text", help=what)


def bootstrap(options: argparse.Namespace) -> list[tuple[str, int]]:
    """The addresses to connect to, from the flag, the variable or the default.

    Raises:
        UsageError: the variable is malformed.
    """
    if options.brokers is not None:
        given: list[tuple[str, int]] = options.brokers
        return given
    try:
        return brokers(os.environ.get(VARIABLE) or DEFAULT)
    except argparse.ArgumentTypeError as e:
        raise UsageError(f"{VARIABLE}: {e}") from e


class UsageError(Exception):
    """Wrong usage; the message is one sentence."""


def brokers(text: str) -> list[tuple[str, int]]:
    """Parse host:port, several separated by commas; the default port is 9092."""
    found: list[tuple[str, int]] = []
    for part in filter(None, map(str.strip, text.split(","))):
        bracketed = part.startswith("[") and part.endswith("]")
        with_port = part if ":" in part and not bracketed else f"{part}:{_KAFKA_PORT}"
        try:
            host, port = split_address(with_port)
        except ValueError as e:
            raise argparse.ArgumentTypeError(f"{part!r} is not HOST:PORT") from e
        if not host or not 0 < port < 65_536:
            raise argparse.ArgumentTypeError(f"{part!r} is not HOST:PORT")
        found.append((host, port))
    if not found:
        raise argparse.ArgumentTypeError("the list of brokers is empty; write HOST:PORT")
    return found


def seconds(text: str) -> float:
    """Parse a positive number of seconds, or a time with a unit; at most a day."""
    try:
        in_ms = MS.plain(text)
        value = float(text) if in_ms == text else int(in_ms) / 1_000
    except ValueError as e:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of seconds, or like 5min"
        ) from e
    if not 0 < value <= 86_400:
        raise argparse.ArgumentTypeError("write a number of seconds above 0, at most 86400 (1d)")
    return value


def pair(text: str) -> tuple[str, str]:
    """Parse name=value."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def config(text: str) -> tuple[str, str]:
    """Parse name=value of a config; Kafka's protocol gets sizes and times as plain numbers."""
    name, value = pair(text)
    return name, _plain(name, value)


def _plain(name: str, value: str) -> str:
    try:
        return plain(name, value)
    except ValueError as e:
        raise argparse.ArgumentTypeError(f"{name}={value}: {e}") from e


def http_url(text: str) -> str:
    """Parse the URL of a schema registry."""
    try:
        return address.registry_url(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(
            f"{text.rpartition('@')[2]!r} is not http(s)://HOST[:PORT][/PATH], without a user"
        ) from e


def path(text: str) -> Sequence[str | int]:
    """Parse the path of a field: order.id, items[0].sku."""
    try:
        return json_path.parse_path(text)
    except json_path.PathError as e:
        raise argparse.ArgumentTypeError(f"{text!r} is not a field: {e}") from e


def named_path(text: str) -> tuple[str, Sequence[str | int]]:
    """Parse NAME=FIELD."""
    name, field = pair(text)
    return name, path(field)


def registry_url(options: argparse.Namespace) -> str | None:
    """The schema registry of the flag or the variable, if there is one. Raises UsageError."""
    url: str | None = options.registry
    if url is None and os.environ.get(REGISTRY_VARIABLE):
        try:
            url = http_url(os.environ[REGISTRY_VARIABLE])
        except argparse.ArgumentTypeError as e:
            raise UsageError(f"{REGISTRY_VARIABLE}: {e}") from e
    if url is None and (options.registry_user or options.registry_password_file is not None):
        raise UsageError(f"the user of a registry needs --registry URL, or ${REGISTRY_VARIABLE}")
    return url


def places(text: str) -> tuple[str, list[int] | None]:
    """Parse topic, or topic:0,1,5-7; None stands for all partitions."""
    topic, colon, numbers = text.partition(":")
    if not topic:
        raise argparse.ArgumentTypeError(f"{text!r} is not TOPIC or TOPIC:PARTITIONS")
    return topic, partitions(numbers) if colon else None


def partitions(text: str) -> list[int]:
    """Parse 0,1,5-7."""
    found: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.partition("-")
        try:
            first, last = int(low), int(high if dash else low)
        except ValueError as e:
            raise argparse.ArgumentTypeError(f"{text!r} is not like 0,1,5-7") from e
        if not 0 <= first <= last < 1_000_000:
            raise argparse.ArgumentTypeError(f"{text!r} is not like 0,1,5-7")
        found.update(range(first, last + 1))
    return sorted(found)


def timestamp(text: str) -> int:
    """Parse a time into milliseconds since 1970; ISO 8601 without an offset is UTC.

    -2h is two hours ago.
    """
    if text.lstrip("-").isdigit():
        return int(text)
    try:
        if text.startswith("-"):
            return clock.time_ns() // 1_000_000 - int(MS.plain(text[1:]))
        when = datetime.fromisoformat(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time: write milliseconds since 1970, 2026-05-31T18:00:00Z, or -2h"
        ) from e
    return round((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)


def quota(text: str) -> tuple[str, float]:
    """Parse a quota's key and its value, a number above 0."""
    name, number = limit(text)
    if not number:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return name, number


def limit(text: str) -> tuple[str, float]:
    """Parse a limit's name and its value, a number of 0 or more."""
    name, value = pair(text)
    try:
        number = float(_plain(name, value).replace("_", ""))
    except ValueError as e:
        raise argparse.ArgumentTypeError(f"{value!r} is not a number") from e
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{value!r} is not a number of 0 or more")
    return name, number


def count(text: str) -> int:
    """Parse a number above 0."""
    if not text.isdecimal() or not 0 < int(text) < 1 << 31:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


# --- positions --------------------------------------------------------------------------------


def position(text: str, also: str = "") -> RequestedPosition:
    """Parse start, end, an offset or @TIME; `also`: what else the caller accepts, in words."""
    if text in ("start", "end"):
        return RequestedPosition(text)
    if text.startswith("@"):
        return RequestedPosition("time", timestamp(text[1:]))
    if text.isdecimal() and int(text) < 1 << 63:
        return RequestedPosition("offset", int(text))
    raise argparse.ArgumentTypeError(f"{text!r} is not start, end, an offset,{also} or @TIME")


def start(text: str) -> RequestedPosition:
    """Parse the start of a read: a position, or -N for the last N records."""
    if text.startswith("-") and text[1:].isdecimal() and int(text[1:]) < 1 << 63:
        return RequestedPosition("last", int(text[1:]))
    return position(
        {"beginning": "start", "earliest": "start", "latest": "end"}.get(text, text), " -N"
    )


def target(text: str) -> RequestedPosition:
    """Parse the target of moved offsets: a position, or +N or -N."""
    if text[:1] in "+-" and text[1:].isdecimal() and int(text[1:]) < 1 << 63:
        return RequestedPosition("shift", int(text))
    return position(text, " +N, -N")
