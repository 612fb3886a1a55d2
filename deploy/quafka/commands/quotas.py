"""`quafka quotas list | set | remove`."""

from __future__ import annotations

import argparse

from quafka.client import quotas
from quafka.client.cluster import Cluster
from quafka.commands.options import UsageError
from quafka.commands.output import as_json, plain, table
from quafka.commands.run import EXIT_DONE, Work, with_cluster

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


async def _list(cluster: Cluster, options: argparse.Namespace) -> int:
    found = await quotas.quotas(cluster, _entity(options))
    if options.format == "json":
        print(as_json({"quotas": found}))
    elif not found:
        print("no quotas")
    else:
        rows = [
            (*(_name(each.entity, kind) for kind in _KINDS), key, f"{value:.15g}")
            for each in found
            for key, value in each.quotas.items()
        ]
        print(table(("USER", "CLIENT ID", "IP", "QUOTA", "VALUE"), rows))
    return EXIT_DONE


def _name(entity: dict[str, str | None], kind: str) -> str | None:
    return (entity[kind] or "<default>") if kind in entity else None


async def _set(cluster: Cluster, options: argparse.Namespace) -> int:
    entity = _named(options)
    values = dict(options.quotas)
    await quotas.alter(cluster, entity, values, (), validate_only=options.dry_run)
    return _report(entity, options)


async def _remove(cluster: Cluster, options: argparse.Namespace) -> int:
    entity = _named(options)
    names = list(options.quotas)
    if not names:
        mine = [each for each in await quotas.quotas(cluster, entity)
                if each.entity == dict(entity)]  # fmt: skip
        names = [key for each in mine for key in each.quotas]
    if names:
        await quotas.alter(cluster, entity, {}, names, validate_only=options.dry_run)
    return _report(entity, options)


def _report(entity: quotas.Entity, options: argparse.Namespace) -> int:
    status = "would change" if options.dry_run else "changed"
    if options.format == "json":
        print(as_json({"entity": dict(entity), "status": status}))
    else:
        print(f"{status} {plain(quotas.text_of(dict(entity)))}")
    return EXIT_DONE


_ACTIONS: dict[str, Work] = {"list": _list, "set": _set, "remove": _remove}
