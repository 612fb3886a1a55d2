"""`quafka acls list | add | remove`, in the words of kafka-acls.

A principal may be written without its kind: alice is User:alice. A name that ends in * is a prefix
unless --resource-pattern-type is given: orders-* is every topic whose name begins with orders-.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from ipaddress import ip_address

from quafka.commands.options import UsageError
from quafka.commands.output import as_json, plain, table
from quafka.commands.run import EXIT_DONE, EXIT_FAILED, Work, complain, with_cluster
from quafka_client import acls
from quafka_client.acls import Acl, Filter
from quafka_client.cluster import ClientCluster
from quafka_proto.acl_kinds import (
    CLUSTER_NAME,
    WILDCARD,
    Operation,
    Pattern,
    Permission,
    ResourceKind,
)

_RESOURCES = {
    "topic": ResourceKind.TOPIC,
    "group": ResourceKind.GROUP,
    "transactional_id": ResourceKind.TRANSACTIONAL_ID,
    "user_principal": ResourceKind.USER,
}
_PRODUCER = {
    ResourceKind.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    ResourceKind.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
_CONSUMER = {
    ResourceKind.TOPIC: (Operation.READ, Operation.DESCRIBE),
    ResourceKind.GROUP: (Operation.READ,),
}
"""What kafka-acls --producer and --consumer stand for."""

_O = Operation
_SUPPORTED = {
    ResourceKind.TOPIC: {
        _O.READ, _O.WRITE, _O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE, _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
    },
    ResourceKind.GROUP: {_O.READ, _O.DELETE, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS},
    ResourceKind.CLUSTER: {
        _O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE, _O.CLUSTER_ACTION, _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS, _O.IDEMPOTENT_WRITE,
    },
    ResourceKind.TRANSACTIONAL_ID: {_O.WRITE, _O.DESCRIBE, _O.TWO_PHASE_COMMIT},
    ResourceKind.USER: {_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS},
}  # fmt: skip
"""The operations that APIs ask for, by resource: a rule about another one has no effect."""

Place = tuple[ResourceKind, str, Pattern]
Who = tuple[str, str, Permission]


def run(options: argparse.Namespace) -> int:
    """Run the action; return the exit code."""
    return with_cluster(options, _ACTIONS[options.action])


# --- what the options name --------------------------------------------------------------------


def _places(options: argparse.Namespace, pattern: Pattern) -> list[Place]:
    """The resources; `pattern` is used if neither the option nor a * decides."""
    chosen: Pattern | None = options.resource_pattern_type
    found: list[Place] = []
    for name, kind in _RESOURCES.items():
        for text in getattr(options, name):
            if chosen is None and text.endswith(WILDCARD) and text != WILDCARD:
                found.append((kind, text[:-1], Pattern.PREFIXED))
            else:
                found.append((kind, text, pattern if chosen is None else chosen))
    if options.cluster:
        found.append((ResourceKind.CLUSTER, CLUSTER_NAME, Pattern.LITERAL))
    return found


def _principal(text: str) -> str:
    return text if ":" in text else f"User:{text}"


def _who(options: argparse.Namespace) -> list[Who]:
    """Each allowed and each denied principal with each of its hosts, and the permission."""
    found: list[Who] = []
    for word, permission in (("allow", Permission.ALLOW), ("deny", Permission.DENY)):
        hosts: list[str] = getattr(options, f"{word}_host")
        names: list[str] = getattr(options, f"{word}_principal")
        if hosts and not names:
            raise UsageError(f"--{word}-host needs --{word}-principal")
        found += [
            (_principal(name), host, permission) for name in names for host in hosts or [WILDCARD]
        ]
    return found


def _operations(
    options: argparse.Namespace, places: Sequence[Place]
) -> list[tuple[Place, Operation]]:
    """The operations on each resource, as --operation, --producer and --consumer name them.

    Raises:
        UsageError: a role lacks its resources, or there are none.
    """
    found = [(place, operation) for place in places for operation in options.operation]
    kinds = {kind for kind, _, _ in places}
    if options.producer and not kinds & _PRODUCER.keys():
        raise UsageError("--producer needs --topic or --transactional-id")
    if options.consumer and not kinds >= _CONSUMER.keys():
        raise UsageError("--consumer needs --topic and --group")
    for wanted, role in ((options.producer, _PRODUCER), (options.consumer, _CONSUMER)):
        if wanted:
            found += [(place, each) for place in places for each in role.get(place[0], ())]
    if options.idempotent:
        cluster = (ResourceKind.CLUSTER, CLUSTER_NAME, Pattern.LITERAL)
        found.append((cluster, Operation.IDEMPOTENT_WRITE))
    return list(dict.fromkeys(found))


def _check_effect(who: Sequence[Who], chosen: Sequence[tuple[Place, Operation]]) -> None:
    """Raise UsageError about a rule that would never apply, above all one that denies nothing."""
    for _, host, _ in who:
        if host != WILDCARD and not _is_address(host):
            raise UsageError(f"{host!r} is not an IP address; rules have no names or networks")
    for (kind, _, _), operation in chosen:
        supported = _SUPPORTED[kind]
        if operation not in supported and operation is not Operation.ALL:
            names = ", ".join(each.name for each in sorted(supported))
            raise UsageError(f"{operation.name} has no effect on a {kind.name}, only {names}")


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


# --- list -------------------------------------------------------------------------------------


async def _list(cluster: ClientCluster, options: argparse.Namespace) -> int:
    places: list[Place | None] = list(_places(options, Pattern.MATCH))
    names: list[str | None] = [_principal(each) for each in options.principal]
    filters = [_filter(place, name) for place in places or [None] for name in names or [None]]
    found = await acls.acls(cluster, filters)
    if options.format == "json":
        print(as_json({"acls": found}))
    elif not found:
        print("no ACLs (`quafka acls add` adds one)")
    else:
        print(_table(found))
    return EXIT_DONE


def _filter(place: Place | None, principal: str | None = None) -> Filter:
    if place is None:
        return Filter(principal=principal)
    return Filter(*place, principal=principal)


def _table(rules: Sequence[Acl]) -> str:
    rows = [
        (each.principal, each.permission, each.operation, each.host, each.resource_type,
         each.resource, each.pattern)
        for each in rules
    ]  # fmt: skip
    headings = ("PRINCIPAL", "PERMISSION", "OPERATION", "HOST", "RESOURCE", "NAME", "PATTERN")
    return table(headings, rows)


# --- add, remove ------------------------------------------------------------------------------


def _rules(options: argparse.Namespace) -> list[Acl]:
    places = _places(options, Pattern.LITERAL)
    if not places and not options.idempotent:
        raise UsageError("no resource given; use --topic, --group, --cluster, ...")
    who = _who(options)
    if not who:
        raise UsageError("no principal given; use --allow-principal or --deny-principal")
    chosen = _operations(options, places) or [(place, Operation.ALL) for place in places]
    _check_effect(who, chosen)
    return [
        Acl(kind.name, name, pattern.name, principal, host, operation.name, permission.name)
        for (kind, name, pattern), operation in chosen
        for principal, host, permission in who
    ]


async def _add(cluster: ClientCluster, options: argparse.Namespace) -> int:
    rules = _rules(options)
    if options.dry_run:
        errors: Sequence[str | None] = [None] * len(rules)
    else:
        errors = await acls.create(cluster, rules)
    status = "would add" if options.dry_run else "added"
    return _report(list(zip(rules, errors, strict=True)), status, options)


async def _remove(cluster: ClientCluster, options: argparse.Namespace) -> int:
    filters = list(_removed(options))
    if options.dry_run:
        found: list[tuple[Acl, str | None]]
        found = [(rule, None) for rule in await acls.acls(cluster, filters)]
    else:
        found = await acls.remove(cluster, filters)
    return _report(found, "would remove" if options.dry_run else "removed", options)


def _removed(options: argparse.Namespace) -> Iterator[Filter]:
    places = _places(options, Pattern.LITERAL)
    who = _who(options)
    if not places and not who and not options.idempotent:
        raise UsageError("no rules selected; use --topic, --group, ..., --allow-principal, ...")
    chosen: list[tuple[Place | None, Operation]] = list(_operations(options, places))
    if not chosen:
        anywhere: list[Place | None] = [*places] or [None]
        chosen = [(place, Operation.ANY) for place in anywhere]
    for place, operation in chosen:
        kind, name, pattern = place or (ResourceKind.ANY, None, Pattern.ANY)
        if not who:
            yield Filter(kind, name, pattern, operation=operation)
        for principal, host, permission in who:
            named = bool(options.allow_host or options.deny_host)
            yield Filter(
                kind, name, pattern, principal, host if named else None, operation, permission
            )


def _report(
    found: Sequence[tuple[Acl, str | None]], status: str, options: argparse.Namespace
) -> int:
    done = [rule for rule, error in found if error is None]
    if options.format == "json":
        failed = [{"acl": rule, "error": error} for rule, error in found if error is not None]
        print(as_json({"status": status, "acls": done, "failed": failed}))
    elif done:
        print(f"{status} {len(done)}:\n{_table(done)}")
    elif not found:
        print("no ACLs match")
    for rule, error in found:
        if error is not None:
            what = f"{rule.operation} on {rule.resource_type} {rule.resource}"
            complain(f"{rule.principal}, {what}: {plain(error)}")
    return EXIT_FAILED if len(done) < len(found) else EXIT_DONE


_ACTIONS: dict[str, Work] = {"list": _list, "add": _add, "remove": _remove}
