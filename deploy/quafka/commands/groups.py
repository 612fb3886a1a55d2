"""`quafka groups list | describe | delete | reset-offsets | export | import | delete-offsets`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from quafka.commands import screen
from quafka.commands.group_import import import_groups
from quafka.commands.options import UsageError
from quafka.commands.output import as_json, catch_up, colour, facts, moment, plain, span, table
from quafka.commands.run import EXIT_DONE, EXIT_FAILED, Work, complain, with_cluster
from quafka_client import groups, offset_files, offset_resets
from quafka_client.cluster import ClientCluster
from quafka_client.errors import ClientError, RequestRefusedError, about
from quafka_client.group_lag import ShownPartitionLag
from quafka_client.group_offsets import Place
from quafka_client.groups import MemberDescription
from quafka_client.offset_resets import OF_SHARES, OffsetMove, UnknownPartitionError, offsets_of
from quafka_loop import clock
from quafka_proto.schema.quafka import DescribeGroupLagRequest

_NOW = "now"
_NO_LAG = "the server does not report lag (DescribeGroupLag); `quafka groups describe` computes it"
_OF_COPY = (
    "the state of a copy: COMMITTED are offsets of its source, so there is no lag here; without "
    "this group the copy cannot continue"
)


def run(options: argparse.Namespace) -> int:
    """Run the action; return the exit code."""
    return with_cluster(options, _ACTIONS[options.action])


# --- list, describe ---------------------------------------------------------------------------


async def _list(cluster: ClientCluster, options: argparse.Namespace) -> int:
    if options.format == "json":
        print(as_json({"groups": await groups.summaries(cluster, options.state)}))
    elif options.watch is None or not screen.is_terminal():
        print(await _listing(cluster, options))
    else:
        await screen.watch(partial(_watched, cluster, options), options.watch)
    return EXIT_DONE


async def _watched(cluster: ClientCluster, options: argparse.Namespace) -> str:
    """The groups with the largest lag first, because only the first ones may fit."""
    now = moment(clock.time_ns() // 1_000_000)
    head = f"groups at {now}, every {options.watch:g} s, largest lag first; q ends"
    return f"{colour(head, 'dim')}\n\n{await _listing(cluster, options, by_lag=True)}"


async def _listing(
    cluster: ClientCluster, options: argparse.Namespace, *, by_lag: bool = False
) -> str:
    found = await groups.summaries(cluster, options.state)
    if not found:
        return "no groups in that state" if options.state else "no groups"
    if by_lag:
        found.sort(key=lambda each: (-(each.lag or 0), each.group))
    rows = [(g.group, g.kind, g.state, g.members, g.lag, span(g.behind_seconds)) for g in found]
    shown = table(("GROUP", "TYPE", "STATE", "MEMBERS", "LAG", "BEHIND"), rows)
    if not cluster.any.has(DescribeGroupLagRequest):
        shown += f"\n\n{colour(_NO_LAG, 'dim')}"
    return shown


async def _describe(cluster: ClientCluster, options: argparse.Namespace) -> int:
    found: list[groups.GroupDetails] = []
    failed = False
    for name in dict.fromkeys(options.groups):
        try:
            found.append(await groups.describe(cluster, name))
        except RequestRefusedError as e:
            failed = True
            complain(str(e))
    if options.format == "json":
        print(as_json({"groups": found}))
    elif found:
        print("\n\n".join(map(_description, found)))
    return EXIT_FAILED if failed else EXIT_DONE


def _description(group: groups.GroupDetails) -> str:
    done = bool(group.partitions) and all(each.lag == 0 for each in group.partitions)
    assignor = f"{group.protocol_type} ({group.protocol})" if group.protocol else None
    catching_up = catch_up(
        group.lag, group.behind_seconds, group.catch_up_seconds, followed=bool(group.members)
    )
    head = facts(
        [
            ("group", group.group),
            ("type", group.kind),
            ("state", group.state),
            ("epoch", group.epoch),
            ("protocol", assignor or group.protocol_type),
            ("coordinator", group.coordinator),
            ("members", len(group.members)),
            ("lag", group.lag),
            ("behind", "caught up" if done else span(group.behind_seconds)),
            *(() if done else (("caught up in", catching_up),)),
        ]
    )
    parts = [head]
    if group.members:
        parts.append(_members(group.members))
    if group.partitions:
        parts.append(_lags(group.partitions))
        if group.uncommitted:
            note = "partitions of these topics without a committed offset, and so without lag"
            parts.append(colour(f"{note}: {group.uncommitted}", "dim"))
    else:
        parts.append(colour("no committed offsets and no assigned partitions", "dim"))
    if groups.keeps_copy_state(group.group):
        parts.append(colour(_OF_COPY, "dim"))
    if not group.timed:
        parts.append(colour("the server does not report lag in seconds (DescribeGroupLag)", "dim"))
    return "\n\n".join(parts)


def _members(members: Sequence[MemberDescription]) -> str:
    headings = ("CLIENT", "HOST", "PARTITIONS", "MEMBER", "INSTANCE")
    rows = [
        (
            each.client_id,
            each.host,
            sum(map(len, each.partitions.values())),
            each.member_id,
            each.instance_id,
        )
        for each in sorted(members, key=lambda each: (each.client_id, each.member_id))
    ]
    shown = len(headings) if any(each.instance_id for each in members) else len(headings) - 1
    return table(headings[:shown], [row[:shown] for row in rows])


def _lags(lags: Sequence[ShownPartitionLag]) -> str:
    rows = [
        (
            each.topic,
            each.partition,
            each.committed_offset,
            each.high_watermark,
            each.lag,
            span(each.behind_seconds),
            catch_up(
                each.lag,
                each.behind_seconds,
                each.catch_up_seconds,
                followed=each.client_id is not None,
            ),
            each.client_id,
            each.host,
        )
        for each in lags
    ]
    return table(
        (
            "TOPIC",
            "PARTITION",
            "COMMITTED",
            "END",
            "LAG",
            "BEHIND",
            "CAUGHT UP IN",
            "CLIENT",
            "HOST",
        ),
        rows,
    )


# --- delete, reset-offsets, delete-offsets ----------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The result for one group."""

    group: str
    status: str
    error: str | None


async def _delete(cluster: ClientCluster, options: argparse.Namespace) -> int:
    answers = await groups.delete(cluster, list(dict.fromkeys(options.groups)))
    found = [
        _Outcome(name, "failed" if error else "deleted", error) for name, error in answers.items()
    ]
    if options.format == "json":
        print(as_json({"groups": found}))
    for each in found:
        if each.error:
            complain(about(f"group {each.group!r}", each.error))
        elif options.format == "text":
            print(f"deleted {plain(each.group)}")
    return EXIT_FAILED if any(each.error for each in found) else EXIT_DONE


@dataclass(frozen=True, slots=True)
class _Moved:
    """The result for one partition. `before`, `offset`: None if no offset is committed.

    `skipped`, `repeated`: how many offsets the group will not consume, or consume again.
    """

    topic: str
    partition: int
    before: int | None
    offset: int | None
    error: str | None
    skipped: int = 0
    repeated: int = 0


async def _reset(cluster: ClientCluster, options: argparse.Namespace) -> int:
    of = await offsets_of(cluster, options.group)
    before = await of.fetch(cluster, options.group)
    try:
        moves = await _moves(cluster, options, before)
    except UnknownPartitionError as e:
        raise UsageError(str(e)) from e
    if not moves:
        raise ClientError(
            f"group {options.group!r} has no committed offsets; name its topics with --topic TOPIC"
        )
    errors: Mapping[Place, str | None] = {}
    if not options.dry_run:
        wanted = {(each.topic, each.partition): each.after for each in moves}
        errors = await of.commit(cluster, options.group, wanted)
    found = [
        _Moved(*place, each.before, each.after, errors.get(place), each.skipped, each.repeated)
        for each in moves
        for place in [(each.topic, each.partition)]
    ]
    return _report(options, found, "would become" if options.dry_run else _NOW)


async def _moves(
    cluster: ClientCluster, options: argparse.Namespace, before: Mapping[Place, int]
) -> list[OffsetMove]:
    """The moves that the options ask for. Raises UsageError and ClientError."""
    if options.from_file is None:
        return await offset_resets.plan(cluster, options.topic, options.to, before)
    if options.topic:
        raise UsageError("--topic cannot be combined with --from-file, which names the topics")
    try:
        text = options.from_file.read_text("utf-8")
        wanted = offset_files.read(text, options.group)
    except OSError as e:
        raise UsageError(f"cannot read {options.from_file}: {e.strerror or e}") from e
    except ValueError as e:
        raise UsageError(f"{options.from_file}: {e}") from e
    if not wanted:
        raise UsageError(f"{options.from_file} has no offsets of group {options.group!r}")
    return await offset_resets.plan_places(cluster, wanted, before)


async def _export(cluster: ClientCluster, options: argparse.Namespace) -> int:
    found: dict[str, Mapping[Place, int]] = {}
    for name in dict.fromkeys(options.groups):
        offsets = await (await offsets_of(cluster, name)).fetch(cluster, name)
        if not offsets:
            raise ClientError(f"group {name!r} has no committed offsets (`quafka groups list`)")
        found[name] = offsets
    if options.format == "json":
        listed = [
            {
                "group": name,
                "partitions": [
                    {"topic": topic, "partition": number, "offset": offset}
                    for (topic, number), offset in sorted(offsets.items())
                ],
            }
            for name, offsets in found.items()
        ]
        print(as_json({"groups": listed}))
    else:
        print(offset_files.written(found), end="")
    return EXIT_DONE


def _report(options: argparse.Namespace, found: Sequence[_Moved], heading: str) -> int:
    done = [each for each in found if not each.error]
    if options.format == "json":
        print(as_json({"group": options.group, "partitions": found}))
    elif done:
        rows = [
            (each.topic, each.partition, each.before, each.offset, each.skipped, each.repeated)
            for each in done
        ]
        headings = ("TOPIC", "PARTITION", "BEFORE", heading.upper(), "SKIPS", "REPEATS")
        preview = heading != _NOW
        shown = len(headings) if preview else len(headings) - 2
        print(table(headings[:shown], [row[:shown] for row in rows]))
    reasons = dict.fromkeys(each.error for each in found if each.error)
    for reason in reasons:
        which = [f"{each.topic}:{each.partition}" for each in found if each.error == reason]
        complain(f"group {options.group!r}, {', '.join(which)}: {reason}")
    return EXIT_FAILED if reasons else EXIT_DONE


async def _delete_offsets(cluster: ClientCluster, options: argparse.Namespace) -> int:
    of = await offsets_of(cluster, options.group)
    if of is OF_SHARES and any(numbers is not None for _, numbers in options.topic):
        raise UsageError("a share group's offsets are deleted for all partitions of a topic")
    before = await of.fetch(cluster, options.group)
    wanted = [
        (name, number)
        for name, numbers in options.topic
        for number in (
            numbers if numbers is not None else sorted(n for its, n in before if its == name)
        )
    ]
    if not wanted:
        names = ", ".join(repr(name) for name, _ in options.topic)
        raise ClientError(f"group {options.group!r} has no offsets in {names}")
    errors = await of.delete(cluster, options.group, wanted)
    found = [_Moved(*place, before.get(place), None, errors.get(place)) for place in sorted(wanted)]
    return _report(options, found, _NOW)


_ACTIONS: dict[str, Work] = {
    "list": _list,
    "describe": _describe,
    "delete": _delete,
    "reset-offsets": _reset,
    "export": _export,
    "import": import_groups,
    "delete-offsets": _delete_offsets,
}
