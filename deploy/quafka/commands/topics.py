"""`quafka topics list | describe | create | alter | delete | add-partitions | delete-records`;
`topics copy` is in `topic_copy.py`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

from quafka.commands.changes import print_changes, status
from quafka.commands.configs import alter, shown
from quafka.commands.options import UsageError
from quafka.commands.output import Quantity, as_json, colour, facts, moment, plain, size, table
from quafka.commands.run import EXIT_DONE, EXIT_FAILED, Work, complain, with_cluster
from quafka_client import offsets, topics
from quafka_client.cluster import ClientCluster
from quafka_client.configs import ConfigResourceKind
from quafka_client.errors import about, sentence
from quafka_client.topic_bounds import MeasuredTopic, measured
from quafka_proto.errors import ErrorCode


def run(options: argparse.Namespace) -> int:
    """Run the action; return the exit code."""
    if options.action == "copy":
        from quafka.commands import topic_copy  # the others need no librdkafka

        return topic_copy.run(options)
    return with_cluster(options, _ACTIONS[options.action])


# --- list, describe ---------------------------------------------------------------------------


async def _list(cluster: ClientCluster, options: argparse.Namespace) -> int:
    by: str = options.sort or "name"
    rates: float | None = options.rates
    if by == "rate" and rates is None:
        rates = _RATE_SECONDS
    measured = options.sizes or rates is not None or by in _FIGURES
    rows = await _measured(cluster, options, rates) if measured else await _plain(cluster, options)
    rows.sort(key=_order(by))
    if options.limit is not None:
        del rows[options.limit :]
    if options.format == "json":
        print(as_json({"topics": rows}))
    elif not rows:
        print("no topics (`quafka topics create NAME` creates one)")
    else:
        headings = ["TOPIC", "PARTITIONS", "REPLICAS"]
        headings += ["RECORDS", "SIZE"] if measured else []
        headings += ["RECORDS/S"] if rates is not None else []
        print(table(headings, [_cells(each)[: len(headings)] for each in rows]))
    return EXIT_DONE


_Row = topics.TopicSummary | MeasuredTopic
_RATE_SECONDS = 2.0
_FIGURES = {"records": "records", "size": "bytes", "rate": "records_per_second"}
"""The columns that have to be asked for, and the fields of each."""


async def _plain(cluster: ClientCluster, options: argparse.Namespace) -> list[_Row]:
    found = await topics.summaries(cluster)
    return [each for each in found if options.internal or not each.internal]


async def _measured(
    cluster: ClientCluster, options: argparse.Namespace, rates: float | None
) -> list[_Row]:
    found = await topics.listed(cluster)
    wanted = [each for each in found if options.internal or not each.is_internal]
    return [*await measured(cluster, wanted, rates)]


def _order(by: str) -> Callable[[_Row], tuple[float, str]]:
    """By name; or the largest first, and those whose figure is not known last."""
    field = _FIGURES.get(by, by)

    def place(row: _Row) -> tuple[float, str]:
        figure = 0 if by == "name" else getattr(row, field)
        return (1 if figure is None else -figure), row.name

    return place


def _cells(row: _Row) -> list[object]:
    cells: list[object] = [row.name, row.partitions, row.replicas]
    if isinstance(row, MeasuredTopic):
        rate = row.records_per_second
        cells += [row.records, size(row.bytes), None if rate is None else Quantity(f"{rate:,.1f}")]
    return cells


async def _describe(cluster: ClientCluster, options: argparse.Namespace) -> int:
    found = [await topics.describe(cluster, name) for name in options.topics]
    if options.format == "json":
        print(as_json({"topics": found}))
    else:
        print("\n\n".join(map(_description, found)))
    return EXIT_DONE


def _description(topic: topics.TopicDetails) -> str:
    pairs: list[tuple[str, object]] = [("topic", topic.name), ("uuid", topic.uuid)]
    pairs += [
        (name, value)
        for name, value in (("id", topic.id), ("slug", topic.slug), ("rrl", topic.rrl))
        if value is not None
    ]
    pairs += [
        ("partitions", len(topic.partitions)),
        ("records", _sum(each.records for each in topic.partitions)),
    ]
    rows = [
        (
            each.partition,
            each.leader,
            each.log_start_offset,
            each.high_watermark,
            each.records,
        )
        for each in topic.partitions
    ]
    parts = [
        facts(pairs),
        table(("PARTITION", "LEADER", "LOG START", "HIGH WATERMARK", "RECORDS"), rows),
    ]
    if topic.compaction:
        parts.append(_compaction(topic.compaction))
    if topic.configs is None:
        parts.append(colour("the server does not report configs (DescribeConfigs)", "dim"))
    else:
        own = [each for each in topic.configs if each.source == "topic"]
        if own:
            parts.append(table(("CONFIG", "VALUE"), [(each.name, shown(each)) for each in own]))
        else:
            parts.append(colour("no configs set (`quafka configs describe` prints all)", "dim"))
    return "\n\n".join(parts)


def _sum(counts: Iterable[int | None]) -> int | None:
    found = [count for count in counts if count is not None]
    return sum(found) if found else None


def _compaction(partitions: list[topics.Compaction]) -> str:
    rows = [
        (
            each.partition,
            each.dirty_bytes,
            each.clean_bytes,
            "due" if each.due else "",
            "none yet" if each.last_ms is None else moment(each.last_ms),
            each.bytes_before,
            each.bytes_after,
        )
        for each in partitions
    ]
    return table(
        (
            "PARTITION",
            "DIRTY BYTES",
            "CLEAN BYTES",
            "COMPACTION",
            "LAST PASS",
            "BYTES READ",
            "BYTES LEFT",
        ),
        rows,
    )


# --- create, alter, delete, add-partitions, delete-records ------------------------------------


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The result for one topic."""

    topic: str
    status: str
    error: str | None


def _report(outcomes: list[_Outcome], options: argparse.Namespace) -> int:
    if options.format == "json":
        print(as_json({"topics": outcomes}))
    for each in outcomes:
        if each.error is not None:
            complain(about(f"topic {each.topic!r}", each.error))
        elif options.format == "text":
            print(f"{each.status} {plain(each.topic)}")
    return EXIT_FAILED if any(each.error for each in outcomes) else EXIT_DONE


async def _create(cluster: ClientCluster, options: argparse.Namespace) -> int:
    outcomes: list[_Outcome] = []
    values = dict(options.config)
    if options.source is not None:
        values["quafka.source"] = options.source
    for name in options.topics:
        result = await topics.create(
            cluster, name, options.partitions, options.replicas, values,
            validate_only=options.dry_run,
        )  # fmt: skip
        status, error = "would create" if options.dry_run else "created", None
        if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS and options.if_not_exists:
            status = "exists"
        elif result.error_code:
            status, error = "failed", sentence(result.error_code, result.error_message)
        outcomes.append(_Outcome(name, status, error))
    return _report(outcomes, options)


async def _delete(cluster: ClientCluster, options: argparse.Namespace) -> int:
    answers = await topics.delete(cluster, list(dict.fromkeys(options.topics)))
    outcomes = [
        _Outcome(name, "failed", sentence(code, message))
        if code
        else _Outcome(name, "deleted", None)
        for name, (code, message) in answers.items()
    ]
    return _report(outcomes, options)


async def _alter(cluster: ClientCluster, options: argparse.Namespace) -> int:
    changes: dict[str, str | None] = {**dict(options.set), **dict.fromkeys(options.unset)}
    if not changes:
        raise UsageError("no change is given; use --set NAME=VALUE or --unset NAME")
    changed = await alter(
        cluster, ConfigResourceKind.TOPIC, options.topic, changes, dry_run=options.dry_run
    )
    if options.format == "json":
        outcome = {"topic": options.topic, "status": status(options), "error": None}
        print(as_json({"topics": [{**outcome, "changes": list(map(asdict, changed))}]}))
    else:
        print_changes(options.topic, "CONFIG", changed, options)
    return EXIT_DONE


async def _add_partitions(cluster: ClientCluster, options: argparse.Namespace) -> int:
    now = len((await cluster.topic(options.topic)).partitions)
    total = now + options.num
    await topics.add_partitions(cluster, options.topic, total, validate_only=options.dry_run)
    if options.format == "json":
        print(as_json({"topic": options.topic, "before": now, "partitions": total}))
    else:
        verb = "would have" if options.dry_run else "has"
        print(f"{plain(options.topic)} {verb} {total} partitions (before: {now})")
    return EXIT_DONE


@dataclass(frozen=True, slots=True)
class _Deleted:
    partition: int
    log_start_offset: int | None
    error: str | None


async def _delete_records(cluster: ClientCluster, options: argparse.Namespace) -> int:
    name, numbers = options.place
    topic = await cluster.topic(name)
    wanted = [each.partition_index for each in topic.partitions] if numbers is None else numbers
    unknown = sorted(set(wanted) - {each.partition_index for each in topic.partitions})
    if unknown:
        raise UsageError(f"topic {name!r} has no partition {unknown[0]}")
    before = await offsets.resolve(cluster, topic, options.before)
    answers = await offsets.delete_records(cluster, topic, {n: before[n] for n in wanted})
    found = [
        _Deleted(n, start if not code else None, sentence(code) if code else None)
        for n, (start, code) in sorted(answers.items())
    ]
    if options.format == "json":
        print(as_json({"topic": name, "partitions": found}))
    else:
        done = [(each.partition, each.log_start_offset) for each in found if not each.error]
        if done:
            print(table(("PARTITION", "LOG START"), done))
    for each in found:
        if each.error:
            complain(f"partition {each.partition} of {name!r}: {each.error}")
    return EXIT_FAILED if any(each.error for each in found) else EXIT_DONE


_ACTIONS: dict[str, Work] = {
    "list": _list,
    "describe": _describe,
    "create": _create,
    "alter": _alter,
    "delete": _delete,
    "add-partitions": _add_partitions,
    "delete-records": _delete_records,
}
