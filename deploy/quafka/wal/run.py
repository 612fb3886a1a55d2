"""`quafka wal verify | dump | repair`: works on the log of a data folder without its broker.

Exit codes: 0 the log is whole (or has been repaired), 1 it is damaged, 2 wrong usage or no log.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any

from quafka.progress import ProgressLine
from quafka.wal.dump import dump
from quafka.wal.repair import Repair
from quafka.wal.reports import EXIT_DAMAGED, EXIT_WHOLE, EXIT_WRONG, as_json, sentence
from quafka_broker.partitions.errors import StorageError
from quafka_broker.topics.replay import BadRegistryError
from quafka_broker.wal.checkpoint_file import faults_of
from quafka_broker.wal.disk import RealDisk
from quafka_broker.wal.errors import DamagedLogError
from quafka_broker.wal.verify import SegmentReport, verify
from quafka_telemetry.startup import StartupError


def run(options: argparse.Namespace) -> int:
    """Run a subcommand; return the exit code."""
    options.data = options.folder or options.data
    if not (options.data / "wal").is_dir():
        print(f"quafka: {options.data} has no log", file=sys.stderr)
        return EXIT_WRONG
    try:
        if options.action == "verify":
            return _verify(options)
        if options.action == "dump":
            return dump(options)
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
    total = sum(file.stat().st_size for file in (options.data / "wal").glob("*.log"))
    done, progress = 0, ProgressLine("verifying")
    for report in verify(RealDisk(options.data / "wal")):
        progress.end()  # a line of the report comes next
        whole = whole and not report.damages and report.index_fault is None
        if options.format == "json":
            print(json.dumps(_report(report)))
        else:
            _print_report(report)
        done += report.size
        progress.show(done, total)
    progress.end()
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
