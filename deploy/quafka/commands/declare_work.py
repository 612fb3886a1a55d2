"""The flags of the commands that move records: `topics copy` and `mirror`."""

from __future__ import annotations

import argparse
from pathlib import Path

from quafka.commands import options as flags
from quafka.commands.declare_records import CODECS


def _target(action: argparse.ArgumentParser, *, required: bool) -> None:
    action.add_argument(
        "--to", metavar="HOST:PORT[,...]", type=flags.brokers, required=required,
        help="the cluster to copy to" + ("" if required else " (default: the same)"),
    )  # fmt: skip
    action.add_argument(
        "--to-command-config", metavar="FILE", type=Path,
        help="how to connect and log in there, as --command-config (default: without a login)",
    )  # fmt: skip


def _copies(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "-g", "--group", action="append", default=[], metavar="PATTERN",
        help="translate the offsets of groups whose names match, such as 'app-*'; may be repeated",
    )  # fmt: skip
    command.add_argument("-z", "--compression", choices=CODECS, default="none")
    command.add_argument(
        "--no-configs", action="store_true", help="create topics without the source's configs"
    )
    command.add_argument(
        "--append", action="store_true",
        help="also write to topics that have records which this job did not write",
    )  # fmt: skip


def topic_copy(action: argparse.ArgumentParser) -> None:
    """Flags of `quafka topics copy`."""
    action.add_argument("source", metavar="SRC")
    action.add_argument(
        "destination", nargs="?", metavar="DST", help="default with --to: the same name"
    )
    _target(action, required=False)
    _copies(action)


def mirror(command: argparse.ArgumentParser) -> None:
    """Flags of `quafka mirror`."""
    _target(command, required=True)
    command.add_argument(
        "-t", "--topic", action="append", required=True, metavar="PATTERN",
        help="topics to copy, also those created later: for example 'orders-*'; may be repeated",
    )  # fmt: skip
    command.add_argument(
        "--exclude", action="append", default=[], metavar="PATTERN",
        help="but not these; may be repeated",
    )  # fmt: skip
    command.add_argument(
        "--name", default="default", metavar="NAME",
        help="the job's name: one process runs it at a time, and a new one continues it",
    )  # fmt: skip
    command.add_argument(
        "--prefix", default="", metavar="TEXT", help="what the names of the copies begin with"
    )
    _copies(command)
    for flag, default, what in (
        ("--commit-interval", 1.0, "how long a transaction takes at most"),
        ("--refresh-interval", 30.0, "how often new topics and partitions are looked for"),
        ("--groups-interval", 60.0, "how often groups' offsets are translated"),
        ("--status-interval", 10.0, "how often the status is printed"),
    ):
        command.add_argument(
            flag, type=flags.seconds, default=default, metavar="SECONDS",
            help=f"{what} (default: {default:g})",
        )  # fmt: skip
    flags.add_format(command, "json: one object per status")
