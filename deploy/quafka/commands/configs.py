"""`quafka configs describe | set | unset`."""

from __future__ import annotations

import argparse
from textwrap import fill, indent

from quafka.client import configs
from quafka.client.cluster import Cluster
from quafka.client.configs import Config, Kind
from quafka.commands.output import NONE, as_json, colour, plain, table
from quafka.commands.run import EXIT_DONE, Work, with_cluster

_INDENT = " " * 4
_KINDS = {"topic": Kind.TOPIC, "broker": Kind.BROKER}


def run(options: argparse.Namespace) -> int:
    """Run the action; return the exit code."""
    return with_cluster(options, _ACTIONS[options.action])


async def _describe(cluster: Cluster, options: argparse.Namespace) -> int:
    found = await configs.describe(
        cluster, _KINDS[options.type], [options.name], documentation=options.docs
    )
    known = found[options.name]
    if options.format == "json":
        print(as_json({"type": options.type, "name": options.name, "configs": known}))
        return EXIT_DONE
    if options.docs:
        print("\n\n".join(map(_explained, known)))
    else:
        rows = [(each.name, _value(each), _source(each)) for each in known]
        print(table(("CONFIG", "VALUE", "SET BY"), rows))
    return EXIT_DONE


def _explained(config: Config) -> str:
    head = f"{colour(plain(config.name), 'bold')} = {plain(_value(config) or NONE)}"
    text = plain(config.documentation or "not documented by the server")
    return f"{head}  (set by: {_source(config)})\n{indent(fill(text, 84), _INDENT)}"


def _value(config: Config) -> str | None:
    return "(not shown)" if config.sensitive else config.value


def _source(config: Config) -> str:
    return f"{config.source}, read-only" if config.read_only else config.source


async def _set(cluster: Cluster, options: argparse.Namespace) -> int:
    return await _change(cluster, options, dict(options.changes))


async def _unset(cluster: Cluster, options: argparse.Namespace) -> int:
    return await _change(cluster, options, dict.fromkeys(options.changes))


async def _change(
    cluster: Cluster, options: argparse.Namespace, changes: dict[str, str | None]
) -> int:
    kind = _KINDS[options.type]
    if kind is Kind.TOPIC:
        await cluster.topic(options.name)  # Metadata's error for a missing topic is clearer
    await configs.alter(cluster, kind, options.name, changes, validate_only=options.dry_run)
    if options.format == "json":
        print(
            as_json(
                {
                    "type": options.type,
                    "name": options.name,
                    "changes": changes,
                    "dry_run": options.dry_run,
                }
            )
        )
    else:
        verb = "would change" if options.dry_run else "changed"
        print(f"{verb} {', '.join(map(plain, changes))} of {options.type} {plain(options.name)}")
    return EXIT_DONE


_ACTIONS: dict[str, Work] = {"describe": _describe, "set": _set, "unset": _unset}
