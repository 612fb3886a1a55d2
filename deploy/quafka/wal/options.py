"""The command line of `quafka wal`. Every start loads it, so it imports no broker code."""

from __future__ import annotations

import argparse
from pathlib import Path

DEFAULT_DATA = Path("./quafka-data")
WHAT = "verify, dump or repair the log of a data folder"
_ACTIONS = {
    "verify": "read the whole log and report damage; works while the broker runs",
    "dump": "print the entries of the log",
    "repair": "replace lost records with empty batches, so that consumers can continue",
}


def data_folder(text: str) -> Path:
    """Parse the path of a local data folder."""
    if "://" in text:
        raise argparse.ArgumentTypeError(
            f"{text} is an object store, not a data folder; `quafka snapshot create URL` makes a "
            "snapshot of a log in a store, which other commands can read"
        )
    return Path(text)


def add_actions(command: argparse.ArgumentParser) -> None:
    """Declare the subcommands and their options."""
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, what in _ACTIONS.items():
        action = actions.add_parser(name, help=what, description=what, allow_abbrev=False)
        whose = action.add_mutually_exclusive_group()
        whose.add_argument(
            "folder", metavar="DIR", nargs="?", type=data_folder, help="the same as --data"
        )
        whose.add_argument(
            "--data", type=data_folder, default=DEFAULT_DATA,
            help="the broker's data folder; default: %(default)s",
        )  # fmt: skip
        action.add_argument("--format", choices=("text", "json"), default="text")
        if name == "dump":
            action.add_argument("--segment", type=int, help="only this segment")
        if name == "repair":
            action.add_argument("--yes", action="store_true", help="do not ask")
            action.add_argument(
                "--name", action="append", default=[], metavar="[HASH=]NAME",
                help="restore this name to the nameless topic that it belongs to",
            )  # fmt: skip
            action.add_argument(
                "--drop", action="append", default=[], metavar="HASH",
                help="delete the records of a nameless topic",
            )  # fmt: skip
