"""`quafka import DIR`: copies Apache Kafka's log folders into a stopped broker's data folder.

Exit codes: 0 done, 2 not all was imported; stderr has the reason. A second run continues.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
from dataclasses import asdict

from quafka.commands.output import size_text
from quafka.logs import broker_logs_from
from quafka.progress import ProgressLine
from quafka.snapshot.output import reason_of
from quafka_broker.imports.errors import ImportRefusedError
from quafka_broker.imports.importer import ImportedTopic, import_topics
from quafka_broker.kafka_logs.errors import KafkaLogError
from quafka_broker.kafka_logs.log_folders import KafkaFolders
from quafka_broker.partitions.errors import StorageError
from quafka_broker.topics.replay import BadRegistryError
from quafka_broker.wal.errors import DamagedLogError
from quafka_loop import clock
from quafka_telemetry.startup import StartupError

EXIT_DONE, EXIT_FAILED = 0, 2


def run(options: argparse.Namespace) -> int:
    """Import; return the exit code."""
    begun = clock.monotonic()
    progress = ProgressLine("importing")
    try:
        folders = KafkaFolders(options.folders)
        with broker_logs_from(logging.ERROR):
            topics = asyncio.run(
                import_topics(
                    folders, options.data, patterns=options.topic, org=options.org,
                    verify=options.verify, progress=progress.show,
                )
            )  # fmt: skip
    except (
        ImportRefusedError, KafkaLogError, StartupError, StorageError, DamagedLogError,
        BadRegistryError, OSError,
    ) as e:  # fmt: skip
        progress.end()
        print(f"quafka: {reason_of(e)}", file=sys.stderr)
        return EXIT_FAILED
    progress.end()
    _print(options, folders, topics, clock.monotonic() - begun)
    return EXIT_DONE


def _print(
    options: argparse.Namespace, folders: KafkaFolders, topics: list[ImportedTopic], took: float
) -> None:
    size, records = sum(each.bytes for each in topics), sum(each.records for each in topics)
    if options.format == "json":
        about = {"cluster": folders.cluster_id, "node": folders.node_id, "bytes": size}
        about |= {"records": records, "seconds": round(took, 3)}
        print(json.dumps({**about, "topics": [asdict(each) for each in topics]}))
        return
    for topic in topics:
        print(
            f"{topic.name}: {topic.partitions} partitions, {topic.records} records, "
            f"{size_text(topic.bytes)}{'' if topic.is_new else ', continued'}"
        )
        for reason in topic.left_out:
            print(f"  config left out: {reason}")
        for number in topic.open:
            print(f"  partition {number} ends in an open transaction: import again after it ended")
    rate = size / took / 1e6 if took else 0.0
    print(
        f"{len(topics)} topics, {records} records, {size_text(size)} in {took:.2f} s "
        f"({rate:.0f} MB/s){', compared' if options.verify else ''}"
    )
