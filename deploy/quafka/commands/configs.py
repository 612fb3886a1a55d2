"""`quafka configs describe | set | unset`."""

from __future__ import annotations

import argparse

from quafka.client import configs
from quafka.client.cluster import Cluster
from quafka.client.configs import Config, Kind
from quafka.commands.output import as_json, plain, table
from quafka.commands.run import EXIT_DONE, Work, with_cluster

_KINDS = {"topic": Kind.TOPIC, "broker": Kind.BROKER}


def run(options: argparse.Namespace) -> int:
    """Do what was asked; the exit code."""
    return with_cluster(options, _ACTIONS[options.action])


async def _describe(cluster: Cluster, options: argparse.Namespace) -> int:
    found = await configs.describe(
        cluster, _KINDS[options.type], [options.name], documentation=options.docs
    )
    known = found[options.name]
    if options.format == "json":
        print(as_json({"type": options.type, "name": options.name, "configs": known}))
        return EXIT_DONE
    headings = ("CONFIG", "VALUE", "SET BY", "WHAT FOR")
    rows = [(each.name, _value(each), _source(each), each.documentation) for each in known]
    shown = len(headings) if options.docs else len(headings) - 1
    print(table(headings[:shown], [row[:shown] for row in rows]))
    return EXIT_DONE


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
        await cluster.topic(options.name)  # its error is clearer
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
