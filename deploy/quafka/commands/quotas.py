"""`quafka quotas list | set | remove`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict

from quafka.commands.changes import ValueChange, print_changes, status
from quafka.commands.options import UsageError
from quafka.commands.output import as_json, number, plain, table
from quafka.commands.run import EXIT_DONE, Work, with_cluster
from quafka_client import quotas
from quafka_client.cluster import ClientCluster
from quafka_mesh_ops.units import with_unit

_KINDS = ("user", "client-id", "ip")


def run(options: argparse.Namespace) -> int:
    """Run the action; return the exit code."""
    return with_cluster(options, _ACTIONS[options.action])


def _entity(options: argparse.Namespace) -> quotas.Entity:
    """The entity that the options name, which may be none. Raises UsageError."""
    found: list[tuple[str, str | None]] = []
    for kind in _KINDS:
        field = kind.replace("-", "_")
        name, default = getattr(options, field), getattr(options, f"{field}_default")
        if name is not None and default:
            raise UsageError(f"--{kind} and --{kind}-default cannot be combined")
        if name is not None or default:
            found.append((kind, name))
    if len(found) > 1 and any(kind == "ip" for kind, _ in found):
        raise UsageError("--ip cannot be combined with --user and --client-id")
    return tuple(found)


def _named(options: argparse.Namespace) -> quotas.Entity:
    entity = _entity(options)
    if not entity:
        raise UsageError("no entity given; use --user, --client-id, --ip, or one of their -default")
    return entity


async def _list(cluster: ClientCluster, options: argparse.Namespace) -> int:
    found = await quotas.quotas(cluster, _entity(options))
    if options.format == "json":
        print(as_json({"quotas": found}))
    elif not found:
        print("no quotas")
    else:
        rows = [
            (*(_name(each.entity, kind) for kind in _KINDS), key, with_unit(key, number(value)))
            for each in found
            for key, value in each.quotas.items()
        ]
        print(table(("USER", "CLIENT ID", "IP", "QUOTA", "VALUE"), rows))
    return EXIT_DONE


def _name(entity: dict[str, str | None], kind: str) -> str | None:
    return (entity[kind] or "<default>") if kind in entity else None


async def _set(cluster: ClientCluster, options: argparse.Namespace) -> int:
    entity = _named(options)
    values = dict(options.quotas)
    before = await _quotas_of(cluster, entity)
    await quotas.alter(cluster, entity, values, (), validate_only=options.dry_run)
    return _report(entity, before, values, options)


async def _remove(cluster: ClientCluster, options: argparse.Namespace) -> int:
    entity = _named(options)
    before = await _quotas_of(cluster, entity)
    names = list(options.quotas) or list(before)
    if names:
        await quotas.alter(cluster, entity, {}, names, validate_only=options.dry_run)
    return _report(entity, before, dict.fromkeys(names), options)


async def _quotas_of(cluster: ClientCluster, entity: quotas.Entity) -> dict[str, float]:
    """The quotas of exactly this entity."""
    found = await quotas.quotas(cluster, entity)
    mine = [each.quotas for each in found if each.entity == dict(entity)]
    return mine[0] if mine else {}


def _report(
    entity: quotas.Entity,
    before: Mapping[str, float],
    after: Mapping[str, float | None],
    options: argparse.Namespace,
) -> int:
    changed = [
        ValueChange(name, _number(before.get(name)), _number(value))
        for name, value in after.items()
    ]
    if options.format == "json":
        document = {"entity": dict(entity), "status": status(options)}
        print(as_json({**document, "changes": list(map(asdict, changed))}))
    elif changed:
        print_changes(quotas.text_of(dict(entity)), "QUOTA", changed, options)
    else:
        print(f"{plain(quotas.text_of(dict(entity)))} has no quotas")
    return EXIT_DONE


def _number(value: float | None) -> str | None:
    return None if value is None else number(value)


_ACTIONS: dict[str, Work] = {"list": _list, "set": _set, "remove": _remove}
