"""The command line of `quafka snapshot`. Imports nothing of the broker: each start parses it."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

WHAT = "make snapshots of a broker's log, look at them, drop them"
_ACTIONS = {
    "create": "make a snapshot of all topics, partitions and group offsets, of one instant",
    "list": "list the snapshots there are",
    "show": "say what is in a snapshot: topics, partitions, group offsets",
    "verify": "read all of a snapshot and say what is wrong with it",
    "drop": "remove a snapshot, and the files that no other one needs",
}
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def add_actions(command: argparse.ArgumentParser) -> None:
    """Declare the subcommands and their options."""
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, what in _ACTIONS.items():
        action = actions.add_parser(name, help=what, description=what, allow_abbrev=False)
        action.add_argument("dest", metavar="DEST", help="a folder, or a URL like s3://bucket/path")
        formats = ("text", "json", "parquet") if name == "create" else ("text", "json")
        what = "of what is printed; parquet: the topics are written as Parquet, too (quafka[spark])"
        action.add_argument(
            "--format", choices=formats, default="text", help=what if formats[2:] else None
        )
        if name == "create":
            _add_create(action)
        elif name == "drop":
            action.add_argument("id", metavar="ID", help="the snapshot's")
        elif name != "list":
            action.add_argument("id", metavar="ID", nargs="?", help="default: the latest")


def _add_create(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "--data", type=Path, default=Path("./quafka-data"),
        help="the broker's data folder, with the broker running or not; default: %(default)s",
    )  # fmt: skip
    action.add_argument(
        "--broker",
        metavar="HOST:PORT",
        help="mesh address of a broker elsewhere",
    )
    action.add_argument(
        "--broker-id", metavar="NODE_ID", help="with --broker: the broker's node id"
    )
    action.add_argument(
        "--node-key", type=Path, default=Path("./quafka-gateway/node.key"),
        help="with --broker: the key of a node on the broker's allow-list; default: %(default)s",
    )  # fmt: skip
    action.add_argument("--org", type=int, help="only this org's records, topics and groups")
    action.add_argument(
        "--lease", type=_seconds, metavar="TIME",
        help="how long it is kept, e.g. 12h or 30d; default: until it is dropped",
    )  # fmt: skip


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+)([smhd])", text)
    if found is None:
        raise argparse.ArgumentTypeError("a number and s, m, h or d")
    return float(int(found[1]) * _UNITS[found[2]])
