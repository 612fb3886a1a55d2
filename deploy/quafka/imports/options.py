"""The command line of `quafka import`. Every start loads it, so it imports no broker code."""

from __future__ import annotations

import argparse
from pathlib import Path

WHAT = "copy topics from Apache Kafka's log folders into the data folder of a stopped broker"


def add_flags(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    command.add_argument(
        "folders", nargs="+", type=Path, metavar="DIR",
        help="a log folder of Apache Kafka, or its server.properties; all of the same broker",
    )  # fmt: skip
    command.add_argument(
        "--data", type=Path, default=Path("./quafka-data"),
        help="the broker's data folder, which may be new; default: %(default)s",
    )  # fmt: skip
    command.add_argument(
        "-t", "--topic", action="append", default=[], metavar="PATTERN",
        help="only topics whose names match, for example 'orders*'; may be repeated",
    )  # fmt: skip
    command.add_argument(
        "--org", type=int, default=1, metavar="N", help="the topics' org; default: %(default)s"
    )
    command.add_argument(
        "--verify", action="store_true", help="read everything back at the end, and compare it"
    )
    command.add_argument("--format", choices=("text", "json"), default="text")
