"""`quafka orgs list | show | create | limit | rename | suspend | resume | delete`."""

from __future__ import annotations

import argparse

from quafka.commands.options import UsageError
from quafka.commands.output import as_json, facts, number, plain, table
from quafka.commands.run import EXIT_DONE, Work, with_cluster
from quafka_client import orgs
from quafka_client.cluster import ClientCluster
from quafka_client.errors import ClientError
from quafka_mesh_ops.units import with_unit

_ACTIVE, _SUSPENDED, _DELETING = "active", "suspended", "deleting"


def run(options: argparse.Namespace) -> int:
    """Run the action; return the exit code."""
    return with_cluster(options, _ACTIONS[options.action])


# --- list, show -------------------------------------------------------------------------------


async def _list(cluster: ClientCluster, options: argparse.Namespace) -> int:
    found = await orgs.orgs(cluster)
    if options.format == "json":
        print(as_json({"orgs": found}))
    else:
        rows = [
            (each.id, each.name, each.state, each.connections, ", ".join(_limits(each)))
            for each in found
        ]
        print(table(("ID", "ORG", "STATE", "CONNECTIONS", "LIMITS"), rows))
    return EXIT_DONE


async def _show(cluster: ClientCluster, options: argparse.Namespace) -> int:
    found: list[orgs.OrgDetails] = []
    for name in dict.fromkeys(options.orgs):
        its = await orgs.orgs(cluster, [name])
        if not its:
            raise ClientError(f"no org {name!r} (`quafka orgs list`)")
        found += its
    if options.format == "json":
        print(as_json({"orgs": found}))
    else:
        print("\n\n".join(map(_shown, found)))
    return EXIT_DONE


def _limits(org: orgs.OrgDetails) -> list[str]:
    return [f"{name}={with_unit(name, number(value))}" for name, value in org.limits.items()]


def _shown(org: orgs.OrgDetails) -> str:
    pairs: list[tuple[str, object]] = [
        ("org", org.name),
        ("id", org.id),
        ("state", org.state),
        ("connections", org.connections),
        ("requests", org.requests),
        ("received bytes", org.received_bytes),
        ("sent bytes", org.sent_bytes),
    ]
    rows = [(name, with_unit(name, number(value))) for name, value in org.limits.items()]
    limits = table(("LIMIT", "VALUE"), rows) if rows else "no limits of its own"
    return f"{facts(pairs)}\n\n{limits}"


# --- create, limit, rename, suspend, resume, delete -------------------------------------------


async def _create(cluster: ClientCluster, options: argparse.Namespace) -> int:
    made = await orgs.alter(
        cluster, options.org, create=True, org_id=options.id, limits=dict(options.limit)
    )
    return _report("created", made, options)


async def _limit(cluster: ClientCluster, options: argparse.Namespace) -> int:
    if not options.limits and not options.remove:
        raise UsageError("no change is given; use NAME=VALUE or --remove NAME")
    changed = await orgs.alter(
        cluster, options.org, limits=dict(options.limits), removed_limits=options.remove
    )
    return _report("limited", changed, options)


async def _rename(cluster: ClientCluster, options: argparse.Namespace) -> int:
    return _report(
        "renamed", await orgs.alter(cluster, options.org, new_name=options.name), options
    )


async def _suspend(cluster: ClientCluster, options: argparse.Namespace) -> int:
    return await _set_state(cluster, options, _SUSPENDED, "suspended")


async def _resume(cluster: ClientCluster, options: argparse.Namespace) -> int:
    return await _set_state(cluster, options, _ACTIVE, "resumed")


async def _delete(cluster: ClientCluster, options: argparse.Namespace) -> int:
    return await _set_state(cluster, options, _DELETING, "deleting")


async def _set_state(
    cluster: ClientCluster, options: argparse.Namespace, state: str, status: str
) -> int:
    return _report(status, await orgs.alter(cluster, options.org, state=state), options)


def _report(status: str, org: orgs.OrgDetails, options: argparse.Namespace) -> int:
    if options.format == "json":
        print(as_json({"status": status, "org": org}))
    else:
        print(f"{status} {plain(org.name)} (id {org.id})")
    return EXIT_DONE


_ACTIONS: dict[str, Work] = {
    "list": _list,
    "show": _show,
    "create": _create,
    "limit": _limit,
    "rename": _rename,
    "suspend": _suspend,
    "resume": _resume,
    "delete": _delete,
}
