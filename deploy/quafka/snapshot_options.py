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
    "restore": "make a new data folder of a snapshot, for a broker to start on",
    "drop": "remove a snapshot, and the files that no other one needs",
}
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_LONGEST_DAYS = 36_500


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
        if name == "restore":
            _add_restore(action)


def _add_restore(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "--data", type=Path, required=True, metavar="NEW",
        help="the new data folder; it may have keys (*.key) in it, but nothing else",
    )  # fmt: skip
    action.add_argument(
        "--org", type=_org, metavar="N", help="only this org's records, topics and groups"
    )
    action.add_argument(
        "--damaged", choices=("refuse", "skip"), default="refuse",
        help="skip: restore what is whole of a damaged snapshot; default: %(default)s",
    )  # fmt: skip


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
    action.add_argument(
        "--org", type=_org, metavar="N", help="only this org's records, topics and groups"
    )
    action.add_argument(
        "--lease", type=_seconds, metavar="TIME",
        help="how long it is kept, e.g. 12h or 30d; default: until it is dropped",
    )  # fmt: skip


def _org(text: str) -> int:
    # Org 0 is the broker's own: what is known of all orgs.
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no org: a whole number above 0")
    return int(text)


def _seconds(text: str) -> float:
    found = re.fullmatch(r"([0-9]{1,12})([smhd])", text)
    seconds = int(found[1]) * _UNITS[found[2]] if found else 0
    if not 0 < seconds <= _LONGEST_DAYS * _UNITS["d"]:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no such time: a number above 0 and s, m, h or d, {_LONGEST_DAYS}d at most"
        )
    return float(seconds)
