"""`quafka completion SHELL`: a script that completes commands, flags, choices, files and names.

shtab writes the script from the parser. Names of topics and groups come from the cluster of
`$QUAFKA_BROKERS`, within a second; without an answer nothing is offered.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from quafka.parser import Parser

if TYPE_CHECKING:
    from quafka_client.cluster import ClientCluster

WHAT = "print a completion script for a shell"
SHELLS = ("bash", "zsh", "fish")
_SECONDS = 1.0
_MOST = 2_000
_SAFE = re.compile(r"[A-Za-z0-9._-]+")
"""Shells expand the words that they are offered, and anybody can name a group `$(rm -r ~)`."""
_INSTALL = {
    "bash": "~/.local/share/bash-completion/completions/quafka",
    "zsh": "a folder of $fpath, as _quafka",
    "fish": "~/.config/fish/completions/quafka.fish",
}


def add_flags(command: argparse.ArgumentParser) -> None:
    """Declare the flags of `quafka completion`."""
    command.epilog = "Save the output as: " + "; ".join(
        f"{shell}: {place}" for shell, place in _INSTALL.items()
    )
    which = command.add_mutually_exclusive_group(required=True)
    which.add_argument("shell", nargs="?", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    which.add_argument("--names", choices=("topics", "groups"), help=argparse.SUPPRESS)


def run(options: argparse.Namespace, parser: Parser) -> int:
    """Print the script, or the names that it asks for. `parser`: the whole one."""
    if options.names is not None:
        import asyncio

        with suppress(Exception):  # a message would stand in the middle of a command line
            sys.stdout.write("".join(f"{name}\n" for name in asyncio.run(_names(options.names))))
        return 0
    import shtab

    for action in _actions(parser):
        found = _completer(action.metavar)
        if found is not None:
            action.complete = found  # type: ignore[attr-defined] # shtab's own attribute
    sys.stdout.write(shtab.complete(parser, options.shell))
    return 0


def _completer(metavar: object) -> dict[str, Any] | None:
    import shtab

    if not isinstance(metavar, str):
        return None
    if metavar.startswith("TOPIC"):
        return _named("topics")
    if metavar == "GROUP":
        return _named("groups")
    if metavar in ("FILE", "PATH"):
        return shtab.FILE
    return shtab.DIRECTORY if metavar in ("DIR", "FOLDER") else None


def _named(what: str) -> dict[str, Any]:
    """shtab's own way to run a command would run it at each start of a zsh."""
    function, ask = f"_quafka_{what}", f"command quafka completion --names {what} 2>/dev/null"
    return {
        "bash": function,
        "zsh": function,
        "fish": f"({ask})",
        "preamble": {
            "bash": f'{function}() {{ compgen -W "$({ask})" -- "$1"; }}',
            "zsh": f'{function}() {{ compadd -- ${{(f)"$({ask})"}}; }}',
        },
    }


def _actions(parser: Parser) -> Iterator[argparse.Action]:
    yield from parser.actions
    for each in parser.subcommands.values():
        yield from _actions(each)


async def _names(what: str) -> list[str]:
    """The first names, of those that a shell can be given. Raises ClientError, TimeoutError."""
    import asyncio

    from quafka.commands.options import bootstrap
    from quafka.commands.security import security_of
    from quafka_client.cluster import ClientCluster

    options = argparse.Namespace(brokers=None, command_config=None, timeout=_SECONDS)
    async with asyncio.timeout(_SECONDS):
        security = security_of(options).security
        async with ClientCluster(bootstrap(options), _SECONDS, security) as cluster:
            found = await _LISTS[what](cluster)
    return [name for name in sorted(found) if _SAFE.fullmatch(name)][:_MOST]


async def _topics(cluster: ClientCluster) -> list[str]:
    from quafka_client import topics

    return [each.name for each in await topics.summaries(cluster) if not each.internal]


async def _groups(cluster: ClientCluster) -> list[str]:
    from quafka_client import groups

    return [each.group for each in await groups.listed(cluster)]


_LISTS: dict[str, Callable[[ClientCluster], Awaitable[list[str]]]] = {
    "topics": _topics,
    "groups": _groups,
}
