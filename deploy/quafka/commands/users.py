"""`quafka users list | add | set-password | remove`.

A password comes from the terminal, from stdin or from a file; never from a flag, which everyone on
the machine could read.
"""

from __future__ import annotations

import argparse
import asyncio
import getpass
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from quafka.commands.options import UsageError, bootstrap
from quafka.commands.output import as_json, plain, table
from quafka.commands.run import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_USAGE,
    Work,
    complain,
    guarded,
    security,
    with_cluster,
)
from quafka.commands.security import is_readable_on_the_way
from quafka_client import users
from quafka_client.cluster import ClientCluster
from quafka_client.credentials import stored_credential
from quafka_client.errors import ClientError, RequestRefusedError, about

_LONGEST = 4_096


def run(options: argparse.Namespace) -> int:
    """Run the action; return the exit code."""
    if getattr(options, "broker_data", None) is not None:
        return guarded(lambda: _at_the_broker(options))
    if getattr(options, "org", None) is not None:
        complain("--org needs --broker-data; otherwise users belong to the org that you log in to")
        return EXIT_USAGE
    return with_cluster(options, _ACTIONS[options.action])


async def _list(cluster: ClientCluster, options: argparse.Namespace) -> int:
    found = await users.users(cluster)
    if options.format == "json":
        print(as_json({"users": found}))
    elif not found:
        print("no users (`quafka users add NAME` adds one)")
    else:
        rows = [(each.user, info.mechanism, info.iterations)
                for each in found for info in each.credentials]  # fmt: skip
        print(table(("USER", "MECHANISM", "ITERATIONS"), rows))
    return EXIT_DONE


# --- add, set-password ------------------------------------------------------------------------


async def _add(cluster: ClientCluster, options: argparse.Namespace) -> int:
    if await users.find(cluster, options.user) is not None:
        raise ClientError(
            f"user {options.user!r} exists already; `quafka users set-password` changes the "
            "password"
        )
    return await _set(cluster, options, options.mechanism or list(users.NUMBERS), "added")


async def _set_password(cluster: ClientCluster, options: argparse.Namespace) -> int:
    known = await users.find(cluster, options.user)
    if known is None:
        raise ClientError(f"user {options.user!r} does not exist; `quafka users add` adds one")
    own = [each.mechanism for each in known.credentials if each.mechanism in users.NUMBERS]
    return await _set(cluster, options, options.mechanism or own, "changed")


async def _set(
    cluster: ClientCluster, options: argparse.Namespace, mechanisms: Sequence[str], status: str
) -> int:
    for host, _ in bootstrap(options):
        if is_readable_on_the_way(security(options), host):
            complain(
                f"the salted password, which is enough to log in, travels unencrypted to {host}; "
                "use SASL_SSL or SSL"
            )
    secret = await asyncio.to_thread(password, options)
    credentials = await asyncio.to_thread(
        users.salted, options.user, secret, mechanisms, options.iterations
    )
    await users.set_password(cluster, credentials)
    return report([UserOutcome(options.user, status, None)], options)


def password(options: argparse.Namespace) -> str:
    """The new password, from a file, the terminal or a line of stdin. Blocks.

    Raises:
        UsageError: there is none, or it is not text.
    """
    path: Path | None = options.password_file
    try:
        if path is not None:
            text = path.read_text("utf-8").removesuffix("\n")
        elif sys.stdin.isatty():
            text = _prompted(options.user)
        else:
            text = sys.stdin.readline(_LONGEST + 2).removesuffix("\n")
    except (OSError, UnicodeDecodeError, EOFError) as e:
        raise UsageError(f"no password: {getattr(e, 'strerror', None) or 'not text'}") from e
    if not 0 < len(text) <= _LONGEST or "\n" in text or "\0" in text:
        raise UsageError(f"the password must be one line of 1 to {_LONGEST} characters")
    return text


def _prompted(user: str) -> str:
    first = getpass.getpass(f"new password of {plain(user)}: ")
    if getpass.getpass("again: ") != first:
        raise UsageError("the two passwords differ; nothing was changed")
    return first


def _at_the_broker(options: argparse.Namespace) -> int:
    """Set the password through the control socket of a broker on this machine."""
    from quafka_broker.security.control import alter_users_request
    from quafka_broker.snapshots.control_socket import ControlError, NoBrokerError, request

    org = options.org or "1"
    secret = password(options)
    changes = [
        stored_credential(options.user, secret, mechanism, options.iterations)
        for mechanism in options.mechanism or users.NUMBERS
    ]
    new = options.action == "add"
    what = alter_users_request(int(org) if org.isdecimal() else org, changes, new=new)
    try:
        request(options.broker_data, what)
    except (NoBrokerError, FileNotFoundError, NotADirectoryError) as e:
        raise ClientError(
            f"no broker runs in {options.broker_data}; start it, or name its data folder"
        ) from e
    except (ControlError, OSError) as e:
        raise ClientError(str(e)) from e
    return report([UserOutcome(options.user, "added" if new else "changed", None)], options)


# --- remove -----------------------------------------------------------------------------------


async def _remove(cluster: ClientCluster, options: argparse.Namespace) -> int:
    outcomes: list[UserOutcome] = []
    for name in dict.fromkeys(options.users):
        known = await users.find(cluster, name)
        own = [] if known is None else [each.mechanism for each in known.credentials]
        chosen = [each for each in own if each in (options.mechanism or own)]
        error = None if chosen else "no such user, or no such credential"
        try:
            await users.remove(cluster, name, chosen)
        except RequestRefusedError as e:
            error = str(e)
        outcomes.append(UserOutcome(name, "failed" if error else "removed", error))
    return report(outcomes, options)


@dataclass(frozen=True, slots=True)
class UserOutcome:
    """The result for one user."""

    user: str
    status: str
    error: str | None


def report(outcomes: list[UserOutcome], options: argparse.Namespace) -> int:
    """Print the result for each user; return the exit code."""
    if options.format == "json":
        print(as_json({"users": outcomes}))
    for each in outcomes:
        if each.error is not None:
            complain(about(f"user {each.user!r}", each.error))
        elif options.format == "text":
            print(f"{each.status} {plain(each.user)}")
    return EXIT_FAILED if any(each.error for each in outcomes) else EXIT_DONE


_ACTIONS: dict[str, Work] = {
    "list": _list,
    "add": _add,
    "set-password": _set_password,
    "remove": _remove,
}
