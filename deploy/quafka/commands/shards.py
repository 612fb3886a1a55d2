"""`quafka shards`: the parts of a cluster's log, who serves each, and how large they are."""

from __future__ import annotations

import argparse

from quafka.commands.output import as_json, colour, size, table
from quafka.commands.run import EXIT_DONE, with_cluster
from quafka_client.cluster import ClientCluster
from quafka_client.cluster_view import CONNECTED, LogPlace, places


def run(options: argparse.Namespace) -> int:
    """List the parts; return the exit code."""
    return with_cluster(options, _list)


async def _list(cluster: ClientCluster, options: argparse.Namespace) -> int:
    found = await places(cluster)
    if options.format == "json":
        print(as_json({"shards": found}))
        return EXIT_DONE
    headings = ("SHARD", "BROKER", "STATE", "TOPICS", "PARTITIONS", "SIZE", "FREE", "PLACE")
    rows = [
        (
            each.shard,
            each.broker,
            each.error or each.state,
            each.topics,
            each.partitions,
            size(each.bytes),
            size(each.free_bytes),
            each.place,
        )
        for each in found
    ]
    # Without shards the column is left out.
    first = 1 if all(each.shard is None for each in found) else 0
    print(table(headings[first:], [row[first:] for row in rows]))
    away = [each for each in found if _is_away(each)]
    if away:
        print(f"\n{colour(f'{len(away)} of {len(found)} cannot be reached', 'red')}")
    return EXIT_DONE


def _is_away(place: LogPlace) -> bool:
    return place.error is not None or place.state != CONNECTED
