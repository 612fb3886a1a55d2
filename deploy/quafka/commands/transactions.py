"""`quafka transactions list | describe | abort`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from quafka.commands.options import UsageError
from quafka.commands.output import as_json, colour, facts, moment, open_for, plain, span, table
from quafka.commands.run import EXIT_DONE, EXIT_FAILED, Work, complain, with_cluster
from quafka_client import transactions
from quafka_client.cluster import ClientCluster
from quafka_client.errors import ClientError, RequestRefusedError, about
from quafka_client.transactions import OpenPartition
from quafka_loop import clock


def run(options: argparse.Namespace) -> int:
    """Run the action; return the exit code."""
    return with_cluster(options, _ACTIONS[options.action])


def _now_ms() -> int:
    return clock.time_ns() // 1_000_000


# --- list, describe ---------------------------------------------------------------------------


async def _list(cluster: ClientCluster, options: argparse.Namespace) -> int:
    found = await transactions.summaries(cluster, options.state, options.open_for, _now_ms())
    if options.format == "json":
        print(as_json({"transactions": found}))
    elif not found:
        chosen = options.state or options.open_for is not None
        print("no such transactions" if chosen else "no transactional ids")
    else:
        rows = [
            (
                each.transactional_id,
                each.state,
                open_for(each.open_seconds),
                span(each.timeout_seconds),
                each.partitions,
                each.producer_id,
                each.coordinator,
            )
            for each in found
        ]
        headings = (
            "TRANSACTIONAL ID", "STATE", "OPEN FOR", "TIMEOUT", "PARTITIONS", "PRODUCER",
            "COORDINATOR",
        )  # fmt: skip
        print(table(headings, rows))
    return EXIT_DONE


async def _describe(cluster: ClientCluster, options: argparse.Namespace) -> int:
    found: list[transactions.TransactionDetails] = []
    failed = False
    for name in dict.fromkeys(options.ids):
        try:
            found.append(await transactions.describe(cluster, name, _now_ms()))
        except RequestRefusedError as e:
            failed = True
            complain(str(e))
    if options.format == "json":
        print(as_json({"transactions": found}))
    elif found:
        print("\n\n".join(map(_description, found)))
    return EXIT_FAILED if failed else EXIT_DONE


def _description(found: transactions.TransactionDetails) -> str:
    started = found.started_ms
    head = facts(
        [
            ("transactional id", found.transactional_id),
            ("state", found.state),
            ("coordinator", found.coordinator),
            ("producer", f"{found.producer_id}, epoch {found.producer_epoch}"),
            ("timeout", span(found.timeout_seconds)),
            ("started", None if started is None else moment(started)),
            ("open for", open_for(found.open_seconds)),
        ]
    )
    if not found.partitions:
        return f"{head}\n\n{colour('no partitions in an open transaction', 'dim')}"
    return f"{head}\n\n{_partitions(found.partitions)}"


def _partitions(found: Sequence[OpenPartition]) -> str:
    rows = [
        (
            each.topic,
            each.partition,
            each.first_offset,
            each.last_stable_offset,
            each.high_watermark,
            each.held_back,
        )
        for each in found
    ]
    headings = ("TOPIC", "PARTITION", "FIRST OFFSET", "LAST STABLE", "END", "HELD BACK")
    return table(headings, rows)


# --- abort ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Aborted:
    """The result for one transactional id."""

    transactional_id: str
    status: str
    error: str | None


@dataclass(frozen=True, slots=True)
class _Ended:
    """The result for one producer in one partition."""

    topic: str
    partition: int
    producer_id: int
    status: str
    error: str | None


async def _abort(cluster: ClientCluster, options: argparse.Namespace) -> int:
    if bool(options.ids) == bool(options.topic):
        raise UsageError("name transactional ids, or partitions with --topic, but not both")
    if options.ids and options.producer is not None:
        raise UsageError("--producer needs --topic")
    if options.topic:
        return await _abort_in_partitions(cluster, options)
    found: list[_Aborted] = []
    for name in dict.fromkeys(options.ids):
        error = None
        try:
            await transactions.abort(cluster, name)
        except RequestRefusedError as e:
            error = str(e)
            complain(error)
        found.append(_Aborted(name, "failed" if error else "aborted", error))
        if not error and options.format == "text":
            print(f"aborted {plain(name)}; its producer is fenced")
    if options.format == "json":
        print(as_json({"transactions": found}))
    return EXIT_FAILED if any(each.error for each in found) else EXIT_DONE


async def _abort_in_partitions(cluster: ClientCluster, options: argparse.Namespace) -> int:
    found: list[_Ended] = []
    for topic, numbers in options.topic:
        errors = await transactions.abort_in_partitions(cluster, topic, numbers, options.producer)
        found += [
            _Ended(topic, *which, "failed" if error else "aborted", error)
            for which, error in sorted(errors.items())
        ]
    if not found:
        raise ClientError("no open transactions in these partitions")
    if options.format == "json":
        print(as_json({"partitions": found}))
    for each in found:
        what = f"producer {each.producer_id} in {each.topic}:{each.partition}"
        if each.error:
            complain(about(what, each.error))
        elif options.format == "text":
            print(plain(f"aborted {what}"))
    return EXIT_FAILED if any(each.error for each in found) else EXIT_DONE


_ACTIONS: dict[str, Work] = {"list": _list, "describe": _describe, "abort": _abort}
