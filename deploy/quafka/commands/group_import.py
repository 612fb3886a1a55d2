"""`quafka groups import DIR`: committed offsets of Apache Kafka's groups, from its log folders."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from quafka.commands.output import as_json, table
from quafka.commands.run import EXIT_DONE, EXIT_FAILED, complain
from quafka_broker.kafka_logs.errors import KafkaLogError
from quafka_broker.kafka_logs.group_offsets import KafkaGroup
from quafka_broker.kafka_logs.log_folders import KafkaFolders
from quafka_client import group_offsets
from quafka_client.cluster import ClientCluster
from quafka_client.errors import ClientError, about


@dataclass(frozen=True, slots=True)
class _Imported:
    """The result for one partition. `before`: the offset that the group had here."""

    group: str
    topic: str
    partition: int
    offset: int
    before: int | None
    status: str
    error: str | None = None


async def import_groups(cluster: ClientCluster, options: argparse.Namespace) -> int:
    """Commit the offsets; return the exit code.

    Leader epochs are left out, because they belong to another cluster.

    Raises:
        ClientError: the folders cannot be read, or no group matches.
    """
    groups = await asyncio.to_thread(_read, [Path(each) for each in options.folders])
    wanted = [group for name, group in sorted(groups.items()) if _matches(name, options.group)]
    if not wanted:
        raise ClientError("no group with offsets matches in these folders")
    found: list[_Imported] = []
    for group in wanted:
        found += await _import(cluster, group, options)
    if options.format == "json":
        print(as_json({"partitions": found}))
    else:
        rows = [(e.group, e.topic, e.partition, e.before, e.offset, e.status) for e in found]
        print(table(("GROUP", "TOPIC", "PARTITION", "BEFORE", "OFFSET", "STATUS"), rows))
    failed = [each for each in found if each.error]
    for each in failed:
        place = f"group {each.group!r}, {each.topic}:{each.partition}"
        complain(about(place, each.error or ""))
    return EXIT_FAILED if failed else EXIT_DONE


def _read(paths: list[Path]) -> dict[str, KafkaGroup]:
    try:
        groups = KafkaFolders(paths).groups()
    except KafkaLogError as e:
        raise ClientError(str(e)) from e
    return {name: group for name, group in groups.items() if group.offsets}


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


async def _import(
    cluster: ClientCluster, group: KafkaGroup, options: argparse.Namespace
) -> list[_Imported]:
    before = await group_offsets.committed_offsets(cluster, group.name)
    moved = {
        place: each
        for place, each in group.offsets.items()
        if before.get(place) != each.offset and (options.overwrite or place not in before)
    }
    errors: dict[group_offsets.Place, str | None] = {}
    if moved and not options.dry_run:
        errors = await group_offsets.commit(
            cluster,
            group.name,
            {place: each.offset for place, each in moved.items()},
            {place: each.metadata for place, each in moved.items()},
        )
    done = "would be imported" if options.dry_run else "imported"
    found: list[_Imported] = []
    for place, each in sorted(group.offsets.items()):
        error = errors.get(place)
        status = "failed" if error else done if place in moved else "kept"
        known = before.get(place)
        found.append(_Imported(group.name, *place, each.offset, known, status, error))
    return found
