"""`quafka configs describe | set | unset`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from textwrap import fill, indent

from quafka.commands.changes import ValueChange, print_changes
from quafka.commands.output import NONE, as_json, colour, plain, table
from quafka.commands.run import EXIT_DONE, Work, with_cluster
from quafka_client import configs
from quafka_client.cluster import ClientCluster
from quafka_client.configs import Config, ConfigResourceKind
from quafka_mesh_ops.units import with_unit

_INDENT = " " * 4
_KINDS = {
    "topic": ConfigResourceKind.TOPIC,
    "broker": ConfigResourceKind.BROKER,
    "group": ConfigResourceKind.GROUP,
}


def run(options: argparse.Namespace) -> int:
    """Run the action; return the exit code."""
    return with_cluster(options, _ACTIONS[options.action])


async def _describe(cluster: ClientCluster, options: argparse.Namespace) -> int:
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
        rows = [(each.name, shown(each), _source(each)) for each in known]
        print(table(("CONFIG", "VALUE", "SET BY"), rows))
    return EXIT_DONE


def _explained(config: Config) -> str:
    head = f"{colour(plain(config.name), 'bold')} = {plain(shown(config) or NONE)}"
    text = plain(config.documentation or "not documented by the server")
    return f"{head}  (set by: {_source(config)})\n{indent(fill(text, 84), _INDENT)}"


def shown(config: Config) -> str | None:
    """The value for people: sizes and times with units."""
    value = _value(config)
    return None if value is None else with_unit(config.name, value)


def _value(config: Config) -> str | None:
    return "(not shown)" if config.sensitive else config.value


def _source(config: Config) -> str:
    return f"{config.source}, read-only" if config.read_only else config.source


async def _set(cluster: ClientCluster, options: argparse.Namespace) -> int:
    return await _change(cluster, options, dict(options.changes))


async def _unset(cluster: ClientCluster, options: argparse.Namespace) -> int:
    return await _change(cluster, options, dict.fromkeys(options.changes))


async def _change(
    cluster: ClientCluster, options: argparse.Namespace, changes: dict[str, str | None]
) -> int:
    kind = _KINDS[options.type]
    changed = await alter(cluster, kind, options.name, changes, dry_run=options.dry_run)
    if options.format == "json":
        print(
            as_json(
                {
                    "type": options.type,
                    "name": options.name,
                    "changes": changes,
                    "before": {each.name: each.before for each in changed},
                    "dry_run": options.dry_run,
                }
            )
        )
    else:
        print_changes(f"{options.type} {options.name}", "CONFIG", changed, options)
    return EXIT_DONE


async def alter(
    cluster: ClientCluster,
    kind: ConfigResourceKind,
    name: str,
    changes: Mapping[str, str | None],
    *,
    dry_run: bool,
) -> list[ValueChange]:
    """Set configs, or only check them; returns the values before and after. Raises ClientError."""
    if kind is ConfigResourceKind.TOPIC:
        await cluster.topic(name)  # Metadata's error for a missing topic is clearer
    before = {each.name: each for each in (await configs.describe(cluster, kind, [name]))[name]}
    await configs.alter(cluster, kind, name, changes, validate_only=dry_run)
    return [_change_of(key, value, before.get(key)) for key, value in changes.items()]


def _change_of(name: str, value: str | None, known: Config | None) -> ValueChange:
    if known is None:
        return ValueChange(name, None, value)
    if known.sensitive:
        return ValueChange(name, _value(known), "(not shown)" if value is not None else None)
    return ValueChange(name, known.value, known.inherited if value is None else value)


_ACTIONS: dict[str, Work] = {"describe": _describe, "set": _set, "unset": _unset}
