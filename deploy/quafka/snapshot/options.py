"""The command line of `quafka snapshot`. Every start loads it, so it imports no broker code."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from quafka.wal.options import DEFAULT_DATA, data_folder
from quafka_mesh_ops.units import MS

WHAT = "create, inspect, restore and drop snapshots of a broker's log"
_ACTIONS = {
    "create": "create a snapshot of all topics, partitions and group offsets at one instant",
    "list": "list the snapshots",
    "show": "print a snapshot's topics, partitions and group offsets",
    "verify": "read a whole snapshot and report damage",
    "restore": "create a data folder, or a log in an object store, from a snapshot",
    "drop": "remove a snapshot, and the files that no other snapshot needs",
}
_LONGEST_DAYS = 36_500


def add_actions(command: argparse.ArgumentParser) -> None:
    """Declare the subcommands and their options."""
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, what in _ACTIONS.items():
        action = actions.add_parser(name, help=what, description=what, allow_abbrev=False)
        action.add_argument("dest", metavar="DEST", help="a folder, or a URL like s3://bucket/path")
        formats = ("text", "json", "parquet") if name == "create" else ("text", "json")
        what = "the output format; parquet: also export the topics as Parquet (quafka[spark])"
        action.add_argument(
            "--format", choices=formats, default="text", help=what if formats[2:] else None
        )
        if name == "create":
            _add_create(action)
        elif name == "drop":
            action.add_argument("id", metavar="ID", help="the snapshot's id")
        elif name != "list":
            action.add_argument("id", metavar="ID", nargs="?", help="default: the latest")
        if name == "restore":
            _add_restore(action)


def _add_restore(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "--data", required=True, metavar="NEW",
        help="the new data folder, which may hold keys (*.key), but nothing else; or the URL of an "
        "object store without a log, as in s3://bucket/prefix",
    )  # fmt: skip
    action.add_argument(
        "--org", type=_org, metavar="N", help="only this org's records, topics and groups"
    )
    action.add_argument(
        "--damaged", choices=("refuse", "skip"), default="refuse",
        help="skip: restore the undamaged records of a damaged snapshot; default: %(default)s",
    )  # fmt: skip


def _add_create(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "--data", type=data_folder, default=DEFAULT_DATA,
        help="the broker's data folder; the broker may be running; default: %(default)s",
    )  # fmt: skip
    action.add_argument(
        "--broker",
        metavar="HOST:PORT",
        help="mesh address of a remote broker",
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
        "--isolation", choices=("read_committed", "read_uncommitted"), default="read_committed",
        help="with --format parquet: the records to export; default: %(default)s",
    )  # fmt: skip
    action.add_argument(
        "--lease", type=_seconds, metavar="TIME",
        help="keep the snapshot for this long, e.g. 12h or 30d; default: until it is dropped",
    )  # fmt: skip


def _org(text: str) -> int:
    # Org 0 is the broker's own: its topics hold the registry and the groups of all orgs.
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not an org: write a whole number above 0")
    return int(text)


def _seconds(text: str) -> float:
    try:
        in_ms = MS.plain(text)
        milliseconds = int(in_ms) if in_ms != text else 0  # a number without a unit is refused
    except ValueError:
        milliseconds = 0
    if not 0 < milliseconds <= _LONGEST_DAYS * 86_400_000:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time: write a number above 0 and s, min, h or d, at most "
            f"{_LONGEST_DAYS}d"
        )
    return milliseconds / 1_000
