"""The flags of the commands that copy records, look at a whole cluster, or measure it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
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


def cluster(command: argparse.ArgumentParser) -> None:
    """Flags of `quafka cluster` and `quafka shards`."""
    flags.add_format(command)


def top(command: argparse.ArgumentParser) -> None:
    """Flags of `quafka top`."""
    command.add_argument(
        "--interval", type=flags.seconds, default=2.0, metavar="SECONDS",
        help="how often it is measured (default: 2); without a terminal: once, over this time",
    )  # fmt: skip
    command.add_argument(
        "--sort", choices=("records/s", "bytes/s", "size", "name"), default="records/s",
        help="what topics are ordered by; on a terminal, keys change it",
    )  # fmt: skip
    flags.add_format(command)


def bench(add: Callable[[str, str], argparse.ArgumentParser]) -> None:
    """Actions of `quafka bench`."""
    produce = add("produce", "write records, and report throughput and latency of each")
    consume = add("consume", "read a topic from start to end, and report the throughput")
    latency = add("latency", "write and read one record at a time, and report the time of each")
    for action in (produce, consume, latency):
        action.add_argument("-t", "--topic", required=True, metavar="TOPIC")
        action.add_argument("-n", "--num", type=flags.count, metavar="N", help="how many records")
        action.add_argument(
            "--duration", type=flags.seconds, metavar="SECONDS",
            help="how long at most, without the warm-up"
            + (" (default: 10, or as long as -n takes)" if action is produce else ""),
        )  # fmt: skip
        action.add_argument(
            "--warm-up", type=flags.seconds, metavar="SECONDS", help="what is not measured"
        )
    for action, size in ((produce, 1024), (latency, 100)):
        action.add_argument(
            "--record-size", type=flags.count, default=size, metavar="BYTES",
            help=f"of each record's value (default: {size})",
        )  # fmt: skip
        action.add_argument("--acks", choices=("all", "1", "0"), default="all")
        action.add_argument(
            "-p", "--partitions", type=flags.count, default=-1, metavar="N",
            help="if the topic does not exist: its partitions (default: the server's)",
        )  # fmt: skip
    produce.add_argument(
        "--rate", type=flags.count, metavar="N", help="records per second (default: unlimited)"
    )
    produce.add_argument("-z", "--compression", choices=CODECS, default="none")
    produce.add_argument(
        "--linger-ms", type=flags.count, default=5, metavar="MS",
        help="how long a batch waits for more records (default: 5)",
    )  # fmt: skip
    produce.add_argument(
        "--batch-size", type=flags.count, default=1_000_000, metavar="BYTES",
        help="of a batch at most (default: 1000000)",
    )  # fmt: skip


COMMANDS = (
    ("mirror", "copy topics to another cluster continuously, with groups' offsets", mirror),
    ("cluster", "show nodes, brokers, versions and health of a cluster", cluster),
    ("shards", "list the parts of a cluster's log, their brokers and sizes", cluster),
    ("top", "show the busiest topics and the groups furthest behind, live", top),
)
