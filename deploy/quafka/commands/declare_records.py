"""The flags of `quafka produce` and `quafka consume`."""

from __future__ import annotations

import argparse
from pathlib import Path

from quafka.commands import options as flags
from quafka.sources import REGISTRY_VARIABLE

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FORMS = ("raw", "json", "hex", "base64")
INPUTS = ("lines", "json", "jsonl", "csv", "avro")
ISOLATION = ("read_committed", "read_uncommitted")


def produce(command: argparse.ArgumentParser) -> None:
    """Declare the flags of `quafka produce`."""
    command.add_argument("-t", "--topic", required=True, metavar="TOPIC")
    command.add_argument(
        "files", nargs="*", metavar="FILE",
        help="a file is one record's value; without files, each line of stdin is one record",
    )  # fmt: skip
    command.add_argument(
        "-l", "--lines", action="store_true", help="each line of the files is one record"
    )
    command.add_argument("-p", "--partition", type=int, default=-1, metavar="N")
    command.add_argument("-k", "--key", metavar="KEY", help="the key of all records")
    command.add_argument(
        "-K", "--key-separator", metavar="TEXT",
        help="the separator of key and value in each line",
    )  # fmt: skip
    command.add_argument(
        "-H", "--header", type=flags.pair, action="append", default=[], metavar="NAME=VALUE",
        help="a header of all records; may be repeated",
    )  # fmt: skip
    command.add_argument("-z", "--compression", choices=CODECS, default="none")
    command.add_argument(
        "--acks", choices=("all", "1", "0"), default="all",
        help="who must have a record before it counts as written (default: all)",
    )  # fmt: skip
    command.add_argument(
        "--rate", type=flags.count, metavar="N", help="at most N records per second"
    )
    command.add_argument(
        "--input", choices=INPUTS, default=INPUTS[0],
        help="json: records as `quafka consume --format json` prints them; jsonl: each line is a "
        "JSON value; csv: each row below the headings; avro: each record of a container file",
    )  # fmt: skip
    command.add_argument(
        "--null-marker", metavar="TEXT", help="this text is null as a key, a value or a CSV cell"
    )
    command.add_argument("--delimiter", metavar="C", help="of CSV (default: a comma)")
    _columns(command)
    flags.add_format(command, "json: one object per record written")


def _columns(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("with --input jsonl, csv and avro, by a field's path")
    for what, more in (
        ("key", ""), ("value", " (default: all of it)"), ("partition", ""),
        ("timestamp", ", in ms since 1970 or ISO 8601"),
    ):  # fmt: skip
        group.add_argument(
            f"--{what}-from", metavar="FIELD", type=flags.path, help=f"the {what}{more}"
        )
    group.add_argument(
        "--header-from", metavar="NAME=FIELD", type=flags.named_path, action="append", default=[],
        help="a header, where the field is not missing; may be repeated",
    )  # fmt: skip
    add_registry(command, "encode keys and values")
    for what in ("key", "value"):
        command.add_argument(
            f"--{what}-schema", metavar="ID", type=flags.count,
            help=f"encode the {what} by this Avro or JSON schema of the registry",
        )  # fmt: skip


def consume(command: argparse.ArgumentParser) -> None:
    """Declare the flags of `quafka consume`."""
    command.add_argument(
        "-t", "--topic", action="append", required=True, metavar="TOPIC", help="may be repeated"
    )
    command.add_argument(
        "-p", "--partitions", type=flags.partitions, metavar="N,...", help="only these partitions"
    )
    command.add_argument(
        "-o", "--offset", type=flags.start, default=None, metavar="POSITION",
        help="start, end, an offset, -N for the last N of each partition, or @TIME (default: "
        "start; with -g: the group's committed offsets)",
    )  # fmt: skip
    command.add_argument("-g", "--group", metavar="GROUP", help="read as a member of this group")
    command.add_argument("-n", "--num", type=flags.count, metavar="N", help="stop after N records")
    command.add_argument(
        "-e", "--exit", action="store_true", help="stop at the end of the partitions"
    )
    shown = command.add_mutually_exclusive_group()
    shown.add_argument(
        "-f", "--template", metavar="TEMPLATE",
        help=r"the format of a record: %%t topic, %%p partition, %%o offset, %%k key, %%s value, "
        r"%%h headers, %%T timestamp, %%S and %%K sizes, %%%%; \n and \t (default: '%%s\n')",
    )  # fmt: skip
    shown.add_argument("--format", choices=("text", "json"), default="text",
                       help="json: one object per record")  # fmt: skip
    _end(command)
    _filters(command)
    _registry(command)


def _end(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--until", type=flags.position, metavar="POSITION",
        help="stop before this: an offset, @TIME, or end: where the partitions end now",
    )  # fmt: skip
    command.add_argument(
        "--follow", action="store_true",
        help="read on at the end, the default without -e, --until and --count",
    )  # fmt: skip
    command.add_argument(
        "--count", action="store_true", help="print how many records there are, not the records"
    )
    command.add_argument(
        "--isolation-level", choices=ISOLATION, default=ISOLATION[0],
        help="read_uncommitted: also records of open and aborted transactions (default: "
        f"{ISOLATION[0]})",
    )  # fmt: skip


def _filters(command: argparse.ArgumentParser) -> None:
    filters = command.add_argument_group("filters, which a record must all pass")
    filters.add_argument("--key", metavar="TEXT", help="in the key; =TEXT: it is the key")
    filters.add_argument(
        "--header", action="append", default=[], metavar="NAME[=VALUE]",
        help="a header of this name, and value; NAME~TEXT: with TEXT in it; may be repeated",
    )  # fmt: skip
    filters.add_argument(
        "--where", metavar="CONDITIONS",
        help="on the value's JSON: 'order.id=7 and items[0].sku~ab'; = != ~ !~ < <= > >=",
    )  # fmt: skip
    filters.add_argument(
        "--grep", metavar="REGEX", help="a regular expression found in key or value, as shown"
    )


def _registry(command: argparse.ArgumentParser) -> None:
    for what in ("key", "value"):
        command.add_argument(
            f"--{what}-as", choices=FORMS, default=FORMS[0], help=f"how a {what} is shown"
        )
    add_registry(command, "decode keys and values: Avro, Protobuf, JSON Schema")


def add_registry(command: argparse.ArgumentParser, what: str) -> None:
    """Declare the flags of a schema registry; `what` it is for."""
    registry = command.add_argument_group("schema registry")
    registry.add_argument(
        "--registry", metavar="URL", type=flags.http_url,
        help=f"to {what} (default: ${REGISTRY_VARIABLE})",
    )  # fmt: skip
    registry.add_argument("--registry-user", metavar="NAME", default="", help="its user")
    registry.add_argument(
        "--registry-password-file", metavar="FILE", type=Path,
        help="the first line is the user's password",
    )  # fmt: skip
