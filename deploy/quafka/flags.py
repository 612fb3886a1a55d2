"""The flags of a program: one for every setting, and help in two lengths.

`--help` shows the settings that declare a `brief` line; `--help-all` shows all, by topic.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import cache
from typing import Any, NoReturn

from quafka.sources import CONFIG_VARIABLE, allowed, declared, flag, shown
from quafka_mesh_ops.settings import CommonSettings

TOPICS: dict[str, tuple[str, ...]] = {
    "Kafka clients": (
        "listen", "advertised_listener", "node_id", "org_id", "workers", "socket",
        "queued", "max_connections", "connections_max_idle_ms", "fetch", "max_incremental",
        "max_partitions_per_request",
    ),
    "log": ("data", "wal", "log_retention", "log_clean", "log_message", "message"),
    "object store": ("cache", "store", "wal_object"),
    "topics": (
        "num_partitions", "auto_create", "max_partitions_per_topic", "max_partitions_per_org",
        "cluster",
    ),
    "producers and transactions": ("max_producers", "producer", "transaction"),
    "consumer groups": ("group", "offset"),
    "share groups": ("group_share",),
    "security": (
        "ssl", "sasl", "listener_", "authorizer", "super_users", "allow_everyone",
        "audit", "security", "connection", "connections_max_reauth_ms", "max_unauthenticated",
        "max_failed",
    ),
    "orgs and quotas": ("max_orgs", "quota"),
    "snapshots": ("snapshot",),
    "topics of Kafka and Redis": ("kafka", "sources"),
    "mesh": ("mesh", "brokers", "node_key"),
    "console": ("console",),
    "operations and telemetry": (
        "log_level", "log_format", "ops", "gateway_ops", "broker_ops", "metrics", "trace",
    ),
}  # fmt: skip
"""The topics of `--help-all`, each with the beginnings of its settings' names. The longest one
decides."""

_SHORTER = {"kafka_log_dirs": ("--adopt",)}


@cache
def topic_of(field: str) -> str:
    """The topic of a setting.

    Raises:
        ValueError: no topic has a beginning of this name.
    """
    found = [
        (len(start), topic)
        for topic, starts in TOPICS.items()
        for start in starts
        if field.startswith(start)
    ]
    if not found:
        raise ValueError(f"flags.TOPICS has no topic for {field}")
    return max(found)[1]


def add_flags(parser: argparse.ArgumentParser, config: type[CommonSettings]) -> None:
    """Declare `--config`, both helps, and a flag for every setting.

    The parser is one with `add_help=False`.
    """
    parser.usage = "%(prog)s [--FLAG VALUE]..."
    parser.add_argument(
        "--config", metavar="PATH", help=f"a TOML file of settings (default: ${CONFIG_VARIABLE})"
    )
    parser.add_argument(
        "-h", "--help", action=_Print, const=lambda: brief_help(parser, config), nargs=0,
        help="print the flags that most people use, and exit",
    )  # fmt: skip
    parser.add_argument(
        "--help-all", action=_Print, const=parser.format_help, nargs=0,
        help="print all flags, and exit",
    )  # fmt: skip
    defaults = _defaults(config)
    known = declared(config)
    for topic in TOPICS:
        names = [name for name in known if topic_of(name) == topic]
        group = parser.add_argument_group(topic) if names else parser
        for name in names:
            default = shown(name, known[name], defaults[name]) or "none"
            what = f"{known[name].help} ({allowed(name, known[name])}; default {default})"
            group.add_argument(
                flag(name), *_SHORTER.get(name, ()), dest=name, metavar="VALUE",
                help=what.replace("%", "%%"),
            )  # fmt: skip


def brief_help(parser: argparse.ArgumentParser, config: type[CommonSettings]) -> str:
    """The settings that most people use, by topic, one line each; and where the others are."""
    known = declared(config)
    briefs = [name for name in known if known[name].brief]
    width = max(len(flag(name)) for name in briefs)
    lines = [parser.format_usage()]
    if parser.description:
        lines += [parser.description, ""]
    for topic in TOPICS:
        names = [name for name in briefs if topic_of(name) == topic]
        lines += [f"{topic}:", *_lines(config, names, width), ""] if names else []
    lines += [
        f"  {'--config':{width}}  a TOML file of settings (default: ${CONFIG_VARIABLE})",
        "",
        f"{len(briefs)} of {len(known)} settings; {parser.prog} --help-all shows all of them",
    ]
    return "\n".join(lines) + "\n"


def _lines(config: type[CommonSettings], names: list[str], width: int) -> Iterator[str]:
    defaults = _defaults(config)
    for name in names:
        known = declared(config)[name]
        default = shown(name, known, defaults[name])
        yield f"  {flag(name):{width}}  {known.brief}" + (
            f" (default {default})" if default else ""
        )


def _defaults(config: type[CommonSettings]) -> dict[str, Any]:
    return {field.name: field.default for field in fields(config)}


class _Print(argparse.Action):
    """Prints what its `const` returns, and ends the program."""

    const: Callable[[], str]

    def __call__(self, *_args: Any) -> NoReturn:
        sys.stdout.write(self.const())
        sys.exit(0)
