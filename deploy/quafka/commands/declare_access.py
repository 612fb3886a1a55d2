"""The flags of `quafka users`, `acls`, `quotas` and `orgs`: permissions and limits."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from quafka.commands import options as flags
from quafka_client.scram import HASHES, LEAST_ITERATIONS
from quafka_mesh_ops.org_limits import LimitName
from quafka_proto.acl_kinds import Operation, Pattern

Actions = Callable[[str, str], argparse.ArgumentParser]

_MOST_ITERATIONS = 16_384  # Kafka's own servers accept no more


def _iterations(text: str) -> int:
    value = flags.count(text)
    if not LEAST_ITERATIONS <= value <= _MOST_ITERATIONS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not between {LEAST_ITERATIONS} and {_MOST_ITERATIONS}"
        )
    return value


# --- users ------------------------------------------------------------------------------------


def users(add: Actions) -> None:
    """Declare `quafka users`."""
    add("list", "all users and the mechanisms that they can log in with")
    for name, what in (
        ("add", "add a user; the password is read from the terminal, stdin or a file"),
        ("set-password", "change a user's password; it is read in the same way"),
    ):
        action = add(name, what)
        action.add_argument("user", metavar="USER")
        _mechanisms(action, "default: SCRAM-SHA-256 and SCRAM-SHA-512, or those that the user has")
        action.add_argument(
            "--iterations", type=_iterations, default=LEAST_ITERATIONS, metavar="N",
            help=f"iterations of the salting, {LEAST_ITERATIONS} to {_MOST_ITERATIONS} (default: "
            f"{LEAST_ITERATIONS}); more slow down both guessing and logging in",
        )  # fmt: skip
        action.add_argument(
            "--password-file", type=Path, metavar="FILE", help="a file that contains the password"
        )
        _broker_data(action)
    action = add("remove", "remove users; their connections end")
    action.add_argument("users", nargs="+", metavar="USER")
    _mechanisms(action, "remove only this credential; may be repeated")


def _broker_data(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "--broker-data", type=Path, metavar="FOLDER",
        help="the data folder of a broker that runs on this machine; needs no login, so it can "
        "add the first user",
    )  # fmt: skip
    action.add_argument(
        "--org",
        metavar="ORG",
        help="with --broker-data: the user's org, by id or name (default: 1)",
    )


def _mechanisms(action: argparse.ArgumentParser, what: str) -> None:
    action.add_argument(
        "--mechanism", choices=tuple(HASHES), action="append", default=[], help=what
    )


# --- acls -------------------------------------------------------------------------------------


def acls(add: Actions) -> None:
    """Declare `quafka acls`."""
    action = add("list", "all ACLs, or those that apply to a resource or a principal")
    action.add_argument(
        "--principal", action="append", default=[], metavar="NAME",
        help="only ACLs of this one: alice, or User:alice; may be repeated",
    )  # fmt: skip
    _resources(action, "default: match, every ACL that applies to the name")
    for name, what in (
        ("add", "allow or deny principals to do something"),
        ("remove", "remove the ACLs that match all of the given options"),
    ):
        action = add(name, what)
        for word in ("allow", "deny"):
            action.add_argument(
                f"--{word}-principal", action="append", default=[], metavar="NAME",
                help=f"{word} this one: alice, User:alice, or User:* for all; may be repeated",
            )  # fmt: skip
            action.add_argument(
                f"--{word}-host", action="append", default=[], metavar="ADDRESS",
                help=f"{word} only from this IP address; may be repeated (default: any)",
            )  # fmt: skip
        action.add_argument(
            "--operation", action="append", default=[], type=_operation, metavar="OPERATION",
            help="Read, Write, Create, Delete, Alter, Describe, ClusterAction, DescribeConfigs, "
            "AlterConfigs, IdempotentWrite, ..., All; may be repeated (default: All)",
        )  # fmt: skip
        action.add_argument(
            "--producer", action="store_true",
            help="the operations of a producer: Write, Describe and Create on --topic, Write and "
            "Describe on --transactional-id",
        )  # fmt: skip
        action.add_argument(
            "--consumer", action="store_true",
            help="the operations of a consumer: Read and Describe on --topic, Read on --group",
        )  # fmt: skip
        action.add_argument(
            "--idempotent", action="store_true", help="IdempotentWrite on the cluster"
        )
        _resources(action, "default: literal; a name that ends in * is a prefix")
        action.add_argument(
            "--dry-run", action="store_true", help="change nothing, print what would change"
        )


def _resources(action: argparse.ArgumentParser, pattern: str) -> None:
    for name, what in (
        ("topic", "a topic, * for all, orders-* for a prefix"),
        ("group", "a consumer group"),
        ("transactional-id", "a transactional id"),
        ("user-principal", "a user, for operations on delegation tokens"),
    ):
        action.add_argument(
            f"--{name}",
            action="append",
            default=[],
            metavar="NAME",
            help=f"{what}; may be repeated",
        )
    action.add_argument("--cluster", action="store_true", help="the cluster itself")
    action.add_argument(
        "--resource-pattern-type", type=_pattern, metavar="TYPE",
        help=f"literal, prefixed, match or any ({pattern})",
    )  # fmt: skip


def _operation(text: str) -> Operation:
    known = {each.name.replace("_", ""): each for each in Operation if each >= Operation.ALL}
    found = known.get(text.replace("_", "").replace("-", "").upper())
    if found is None:
        names = ", ".join(each.name for each in known.values())
        raise argparse.ArgumentTypeError(f"{text!r} is not an operation; they are {names}")
    return found


def _pattern(text: str) -> Pattern:
    if text.upper() not in Pattern.__members__ or text.upper() == "UNKNOWN":
        raise argparse.ArgumentTypeError(f"{text!r} is not literal, prefixed, match or any")
    return Pattern[text.upper()]


# --- quotas -----------------------------------------------------------------------------------


def quotas(add: Actions) -> None:
    """Declare `quafka quotas`."""
    action = add("list", "all quotas, or those of these users, client ids or addresses")
    _entity(action)
    action = add("set", "set quotas of a user, a client id, both, or an IP address")
    _entity(action)
    action.add_argument(
        "quotas", nargs="+", type=flags.quota, metavar="QUOTA=VALUE",
        help="producer_byte_rate, consumer_byte_rate, request_percentage, "
        "controller_mutation_rate; for an address: connection_creation_rate",
    )  # fmt: skip
    _dry_run(action)
    action = add("remove", "remove quotas")
    _entity(action)
    action.add_argument("quotas", nargs="*", metavar="QUOTA", help="default: all of the entity's")
    _dry_run(action)


def _entity(action: argparse.ArgumentParser) -> None:
    for kind, what in (("user", "user"), ("client-id", "client id"), ("ip", "address")):
        action.add_argument(f"--{kind}", metavar="NAME", help=f"a {what}")
        action.add_argument(
            f"--{kind}-default", action="store_true", help=f"each {what} without quotas of its own"
        )


def _dry_run(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "--dry-run", action="store_true", help="change nothing, print what would change"
    )


# --- orgs -------------------------------------------------------------------------------------


def orgs(add: Actions) -> None:
    """Declare `quafka orgs`."""
    names = ", ".join(LimitName)
    add("list", "all orgs")
    action = add("show", "the state and limits of orgs, and their clients' usage at this gateway")
    action.add_argument("orgs", nargs="+", metavar="ORG", help="its name or its id")
    action = add("create", "create an org")
    action.add_argument("org", metavar="NAME")
    action.add_argument(
        "--id", type=flags.count, default=0, metavar="N", help="default: a free one"
    )
    action.add_argument(
        "--limit", type=flags.limit, action="append", default=[], metavar="NAME=VALUE",
        help=f"{names}; may be repeated",
    )  # fmt: skip
    action = _org(add, "limit", "set and remove limits of an org; others stay as they are")
    action.add_argument("limits", nargs="*", type=flags.limit, metavar="NAME=VALUE", help=names)
    action.add_argument(
        "--remove", action="append", default=[], metavar="NAME",
        help="reset this limit to the default of broker and gateway; may be repeated",
    )  # fmt: skip
    action = _org(add, "rename", "rename an org")
    action.add_argument("name", metavar="NEW_NAME")
    _org(add, "suspend", "disconnect an org's clients, and refuse their logins")
    _org(add, "resume", "accept the clients of a suspended org again")
    _org(add, "delete", "delete an org with all of its topics, groups, users and rules")


def _org(add: Actions, name: str, what: str) -> argparse.ArgumentParser:
    action = add(name, what)
    action.add_argument("org", metavar="ORG", help="its name or its id")
    return action
