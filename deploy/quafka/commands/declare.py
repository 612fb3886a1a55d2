"""The flags of the client commands. A command's module is imported only when the command runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, cast

from quafka.commands import declare_access as access
from quafka.commands import declare_records as records
from quafka.commands import declare_work as work
from quafka.commands import options as flags
from quafka.exit_codes import EXIT_WRONG_SETTING

CLIENTS = (
    "topics", "groups", "transactions", "configs", "users", "acls", "quotas", "orgs", "produce",
    "consume", "doctor", "mirror", "cluster", "shards", "top", "bench",
)  # fmt: skip

Actions = Callable[[str, str], argparse.ArgumentParser]


class Declared(NamedTuple):
    """A command: its name, what it does, what adds its flags, and options of its parser."""

    name: str
    what: str
    add: Callable[[argparse.ArgumentParser], None]
    allow_abbrev: bool = True
    add_help: bool = True


def commands() -> Iterator[Declared]:
    """All of them, as subcommands of `quafka`."""
    for name, what, add in (
        ("topics", "list, describe, create, alter, grow and delete topics", _topics),
        ("groups", "show and change consumer groups: lag, members, offsets", _groups),
        ("transactions", "show transactions, and abort those that hang", _transactions),
        ("configs", "show and change configs of topics, brokers and groups", _configs),
        ("users", "show and change users and their passwords", access.users),
        ("acls", "show, add and remove ACLs: who may do what", access.acls),
        ("quotas", "show and change quotas of users, clients and addresses", access.quotas),
        ("orgs", "show and change the orgs of a Quafka cluster, for its operators", access.orgs),
        ("bench", "load a Kafka cluster, and report throughput and latencies", work.bench),
    ):
        yield Declared(name, what, partial(_add_actions, add))
    for name, what, add_flags in (
        ("produce", "write records from stdin or files", records.produce),
        ("consume", "read records, alone or as a member of a group", records.consume),
        *work.COMMANDS,
        ("doctor", "check step by step what a Kafka client needs, and suggest fixes", _doctor),
    ):
        yield Declared(name, what, partial(_add_connected, add_flags), allow_abbrev=False)


def _add_actions(add: Callable[[Actions], None], command: argparse.ArgumentParser) -> None:
    add(_actions(command))


def _add_connected(
    add_flags: Callable[[argparse.ArgumentParser], None], command: argparse.ArgumentParser
) -> None:
    flags.add_connection(command)
    add_flags(command)


def run(options: argparse.Namespace) -> int:
    """Run the command that was given; return its exit code."""
    _check_text(options)
    code: int = import_module(f"quafka.commands.{options.command}").run(options)
    return code


def _check_text(options: argparse.Namespace) -> None:
    """Ends with 2 if a text is not UTF-8, as Kafka's protocol has it; files may be named so."""
    found: list[object] = [value for name, value in vars(options).items() if name != "files"]
    for value in found:
        if isinstance(value, list | tuple):
            found += cast("Sequence[object]", value)
        elif isinstance(value, str) and not value.isascii():
            data = value.encode(errors="surrogateescape")
            try:
                data.decode()
            except UnicodeDecodeError:
                print(f"quafka: {data!r} is not UTF-8", file=sys.stderr)
                sys.exit(EXIT_WRONG_SETTING)


def _actions(command: argparse.ArgumentParser) -> Actions:
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")

    def add(name: str, what: str) -> argparse.ArgumentParser:
        action = actions.add_parser(name, help=what, description=what, allow_abbrev=False)
        flags.add_connection(action)
        flags.add_format(action)
        return action

    return add


def _dry_run(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "--dry-run", action="store_true", help="change nothing, print what would change"
    )


# --- topics, groups, transactions, configs --------------------------------------------------------


def _topics(add: Actions) -> None:
    action = add("list", "all topics")
    action.add_argument(
        "--internal", action="store_true", help="include the server's internal topics"
    )
    action.add_argument(
        "--sizes", action="store_true", help="also records, and bytes at the partitions' leaders"
    )
    action.add_argument(
        "--rates", type=flags.seconds, nargs="?", const=2.0, metavar="SECONDS",
        help="also new records per second, measured over this time (default: 2)",
    )  # fmt: skip
    action.add_argument(
        "--sort", choices=("name", "partitions", "records", "size", "rate"),
        help="the largest first; what it needs is measured (default: name)",
    )  # fmt: skip
    action.add_argument(
        "--limit", type=flags.count, metavar="N", help="only the first N topics of that order"
    )
    action = add("describe", "identity, partitions, offsets and configs of topics")
    action.add_argument("topics", nargs="+", metavar="TOPIC")
    action = add("create", "create topics")
    action.add_argument("topics", nargs="+", metavar="TOPIC")
    for short, name in (("-p", "--partitions"), ("-r", "--replicas")):
        action.add_argument(
            short, name, type=flags.count, default=-1, metavar="N", help="default: the server's"
        )
    action.add_argument(
        "-c", "--config", type=flags.config, action="append", default=[], metavar="NAME=VALUE",
        help="a config of the topics; may be repeated",
    )  # fmt: skip
    action.add_argument(
        "--source", metavar="URL",
        help="serve Redis streams: redis://host:port/db?stream=NAME (see redis-streams.md)",
    )  # fmt: skip
    action.add_argument(
        "--if-not-exists", action="store_true", help="succeed if the topic exists already"
    )
    _dry_run(action)
    action = add("alter", "change configs of a topic, all of them or none")
    action.add_argument("topic", metavar="TOPIC")
    action.add_argument(
        "--set", type=flags.config, action="append", default=[], metavar="NAME=VALUE",
        help="may be repeated",
    )  # fmt: skip
    action.add_argument(
        "--unset",
        action="append",
        default=[],
        metavar="NAME",
        help="return to the default; may be repeated",
    )
    _dry_run(action)
    action = add("delete", "delete topics and all of their records")
    action.add_argument("topics", nargs="+", metavar="TOPIC")
    action = add("add-partitions", "add partitions to a topic; they cannot be removed")
    action.add_argument("topic", metavar="TOPIC")
    action.add_argument(
        "-n", "--num", type=flags.count, required=True, metavar="N", help="how many to add"
    )
    _dry_run(action)
    work.topic_copy(add("copy", "copy a topic, here or to another cluster, exactly once"))
    action = add("delete-records", "delete the oldest records of partitions")
    action.add_argument(
        "place", type=flags.places, metavar="TOPIC[:PARTITIONS]", help="for example orders:0,3-5"
    )
    action.add_argument(
        "--before", type=flags.position, required=True, metavar="POSITION",
        help="delete records before this: an offset, end, or @TIME (milliseconds or ISO 8601)",
    )  # fmt: skip


def _groups(add: Actions) -> None:
    action = add("list", "all groups and their lag")
    action.add_argument(
        "--state", action="append", default=[], metavar="STATE",
        help="only groups in this state: Stable, Empty, PreparingRebalance, ...; may be repeated",
    )  # fmt: skip
    action.add_argument(
        "--watch", nargs="?", const=2.0, type=flags.seconds, metavar="SECONDS",
        help="on a terminal: show them again every so often (default: 2), the largest lag first",
    )  # fmt: skip
    action = add("describe", "members, and lag in records, in seconds, and the time to catch up")
    action.add_argument("groups", nargs="+", metavar="GROUP")
    action = add("delete", "delete groups that have no members, and their offsets")
    action.add_argument("groups", nargs="+", metavar="GROUP")
    action = add("reset-offsets", "move the offsets of a group that has no members")
    action.add_argument("group", metavar="GROUP")
    where = action.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--to", type=flags.target, metavar="POSITION",
        help="start, end, an offset, +N or -N from the committed offset, @TIME (milliseconds or "
        "ISO 8601) or @-2h, two hours ago; write --to=-N",
    )  # fmt: skip
    where.add_argument(
        "--from-file", type=Path, metavar="FILE",
        help="the offsets of a file of `quafka groups export`, or of Kafka's own tool",
    )  # fmt: skip
    action.add_argument(
        "-t", "--topic", type=flags.places, action="append", default=[],
        metavar="TOPIC[:PARTITIONS]",
        help="for example orders:0,3-5; may be repeated (default: every committed partition)",
    )  # fmt: skip
    _dry_run(action)
    action = add("export", "print committed offsets as CSV, for reset-offsets --from-file")
    action.add_argument("groups", nargs="+", metavar="GROUP")
    action = add("import", "import groups' committed offsets from Apache Kafka's log folders")
    action.add_argument(
        "folders", nargs="+", metavar="DIR",
        help="a log folder of Apache Kafka, or its server.properties; all of the same broker",
    )  # fmt: skip
    action.add_argument(
        "-g", "--group", action="append", default=[], metavar="PATTERN",
        help="only groups whose names match, for example 'app-*'; may be repeated",
    )  # fmt: skip
    action.add_argument(
        "--overwrite", action="store_true",
        help="also overwrite offsets that a group already has here; by default they are kept",
    )  # fmt: skip
    _dry_run(action)
    action = add("delete-offsets", "delete a group's offsets in topics that it does not read")
    action.add_argument("group", metavar="GROUP")
    action.add_argument(
        "-t", "--topic", type=flags.places, action="append", required=True,
        metavar="TOPIC[:PARTITIONS]", help="for example orders:0,3-5; may be repeated",
    )  # fmt: skip


def _transactions(add: Actions) -> None:
    action = add("list", "transactional ids, the longest open transaction first")
    action.add_argument(
        "--state", action="append", default=[], metavar="STATE",
        help="only ids in this state: Empty, Ongoing, CompleteCommit, ...; may be repeated",
    )  # fmt: skip
    action.add_argument(
        "--open-for", type=flags.seconds, metavar="SECONDS",
        help="only transactions that have been open for at least this long",
    )  # fmt: skip
    action = add("describe", "the producer, and the records that its open transaction holds back")
    action.add_argument("ids", nargs="+", metavar="ID")
    action = add("abort", "abort open transactions; their producers are fenced")
    action.add_argument("ids", nargs="*", metavar="ID")
    action.add_argument(
        "-t", "--topic", type=flags.places, action="append", default=[],
        metavar="TOPIC[:PARTITIONS]",
        help="without ids: end open transactions in these partitions without their coordinator; "
        "may be repeated",
    )  # fmt: skip
    action.add_argument(
        "--producer", type=int, metavar="PRODUCER_ID", help="with --topic: only of this producer"
    )


def _configs(add: Actions) -> None:
    def whose(action: argparse.ArgumentParser) -> None:
        action.add_argument("name", metavar="NAME", help="a topic, a broker's node id, or a group")
        action.add_argument("--type", choices=("topic", "broker", "group"), default="topic")

    action = add("describe", "all configs, and where each is set")
    whose(action)
    action.add_argument("--docs", action="store_true", help="also print the documentation of each")
    action = add("set", "set configs, all of them or none")
    whose(action)
    action.add_argument("changes", nargs="+", type=flags.config, metavar="NAME=VALUE")
    _dry_run(action)
    action = add("unset", "return configs to their defaults, all of them or none")
    whose(action)
    action.add_argument("changes", nargs="+", metavar="NAME")
    _dry_run(action)


# --- doctor ---------------------------------------------------------------------------------------


def _doctor(command: argparse.ArgumentParser) -> None:
    flags.add_format(command)
    command.add_argument(
        "--write", metavar="TOPIC",
        help="also write a record to this topic and read it back, and report the times",
    )  # fmt: skip
    command.add_argument(
        "--groups", action="store_true",
        help="also report groups without consumers, with members that do not follow, or "
        "use both protocols",
    )  # fmt: skip
    command.add_argument(
        "--store", metavar="URL",
        help="check an object store instead of a cluster: whether it can hold a log",
    )  # fmt: skip
