"""`quafka wal verify | dump | repair`: works on the log of a data folder without its broker.

Exit codes: 0 the log is whole (or has been repaired), 1 it is damaged, 2 wrong usage or no log.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator
from typing import Any

from quafka.wal.repair import Repair
from quafka.wal.reports import EXIT_DAMAGED, EXIT_WHOLE, EXIT_WRONG, as_json, sentence
from quafka_broker.partitions.errors import StorageError
from quafka_broker.partitions.partition import PartitionId
from quafka_broker.topics.replay import BadRegistryError
from quafka_broker.wal.checkpoint_file import faults_of
from quafka_broker.wal.disk import RealDisk
from quafka_broker.wal.errors import DamagedLogError
from quafka_broker.wal.scan import Bad, Torn
from quafka_broker.wal.verify import SegmentReport, entries, verify
from quafka_proto.errors import Malformed
from quafka_telemetry.startup import StartupError


def run(options: argparse.Namespace) -> int:
    """Run a subcommand; return the exit code."""
    if not (options.data / "wal").is_dir():
        print(f"quafka: {options.data} has no log", file=sys.stderr)
        return EXIT_WRONG
    try:
        if options.action == "verify":
            return _verify(options)
        if options.action == "dump":
            return _dump(options)
        repair = Repair(options.data, options.format, options.yes, options.name, options.drop)
        return asyncio.run(repair.run())
    except BrokenPipeError:
        raise  # handled in `cli.main`; the log is not concerned
    except (OSError, StartupError, StorageError, DamagedLogError, BadRegistryError) as e:
        print(f"quafka: {e}", file=sys.stderr)
        return EXIT_WRONG


# --- verify -----------------------------------------------------------------------------------


def _verify(options: argparse.Namespace) -> int:
    whole = True
    if options.format == "text":
        print(f"{'segment':>12} {'bytes':>14} {'entries':>10}  state")
    for report in verify(RealDisk(options.data / "wal")):
        whole = whole and not report.damages and report.index_fault is None
        if options.format == "json":
            print(json.dumps(_report(report)))
        else:
            _print_report(report)
    for name, fault in faults_of(RealDisk(options.data / "wal")).items():
        whole = False
        about = {"checkpoint": name, "fault": fault}
        print(json.dumps(about) if options.format == "json" else f"{name}: {fault}")
    return EXIT_WHOLE if whole else EXIT_DAMAGED


def _print_report(report: SegmentReport) -> None:
    remarks = [sentence(damage) for damage in report.damages]
    if report.index_fault is not None:
        remarks.append(f"index: {report.index_fault}")
    if report.torn:
        remarks.append(f"{report.torn} bytes of unfinished writes at the end")
    first, *others = remarks or ["whole"]
    print(f"{report.number:>12} {report.size:>14} {report.entries:>10}  {first}")
    for remark in others:
        print(f"{'':>40}{remark}")


def _report(report: SegmentReport) -> dict[str, Any]:
    return {
        "segment": report.number,
        "bytes": report.size,
        "entries": report.entries,
        "torn": report.torn,
        "index": report.index_fault,
        "damages": [as_json(damage) for damage in report.damages],
    }


# --- dump -------------------------------------------------------------------------------------


def _dump(options: argparse.Namespace) -> int:
    whole = True
    disk = RealDisk(options.data / "wal")
    numbers = sorted(int(name[:-4]) for name in disk.names() if name.endswith(".log"))
    if options.segment is not None:
        numbers = [options.segment]
    for number in numbers:
        try:
            for line, good in _lines(disk, number, options.format):
                whole = whole and good
                print(line)
        except Malformed as e:
            whole = False
            print(f"quafka: segment {number}: {e}", file=sys.stderr)
    return EXIT_WHOLE if whole else EXIT_DAMAGED


def _lines(disk: RealDisk, number: int, format_: str) -> Iterator[tuple[str, bool]]:
    """A segment's entries as text; with each, whether it is undamaged."""
    for found in entries(disk, number):
        if isinstance(found, (Bad, Torn)):
            kind = "damaged" if isinstance(found, Bad) else "torn"
            about: dict[str, Any] = {
                "segment": number, "position": found.start, kind: found.reason,
            }  # fmt: skip
        else:
            partition = PartitionId(
                found.org_id, found.topic_hash, found.partition, found.generation
            )
            about = {
                "segment": number,
                "position": found.position,
                "id": found.global_id,
                "virtual_topic": partition.key,
                "generation": found.generation,
                "offset": found.base_offset,
                "leader_epoch": found.leader_epoch,
                "records": found.record_count,
                "bytes": found.length,
                "max_timestamp": found.max_timestamp,
                "producer_id": found.producer_id,
            }
        good = not isinstance(found, Bad)
        if format_ == "json":
            yield json.dumps(about), good
        else:
            yield "  ".join(f"{key} {value}" for key, value in about.items()), good
