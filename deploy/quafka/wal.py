"""`quafka wal verify | dump | repair`: the log of a data folder, without its broker.

Exit codes: 0 the log is whole (or was made so), 1 it is damaged, 2 wrong usage, or no such log.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quafka_broker.config import BrokerConfig
from quafka_broker.registry_replay import BadRegistryError
from quafka_broker.server import DataFolder
from quafka_broker.state import BrokerState
from quafka_broker.virtual_topics import VirtualTopicId
from quafka_broker.wal.disk import RealDisk
from quafka_broker.wal.errors import DamagedLogError, StorageError
from quafka_broker.wal.log import Log
from quafka_broker.wal.quarantine import Damage
from quafka_broker.wal.scan import Bad, Torn
from quafka_broker.wal.segment import index_name
from quafka_broker.wal.verify import SegmentReport, entries, verify
from quafka_broker.wal.writer import FsyncPolicy
from quafka_mesh_ops.errors import StartupError
from quafka_proto.errors import Malformed

EXIT_WHOLE, EXIT_DAMAGED, EXIT_WRONG = 0, 1, 2
_SEGMENT_BYTES = 1 << 30


def run(options: argparse.Namespace) -> int:
    """Run a subcommand; the exit code."""
    if not (options.data / "wal").is_dir():
        print(f"quafka: there is no log in {options.data}", file=sys.stderr)
        return EXIT_WRONG
    try:
        if options.action == "verify":
            return _verify(options)
        if options.action == "dump":
            return _dump(options)
        return asyncio.run(_Repair(options.data, options.format, options.yes).run())
    except BrokenPipeError:
        raise  # nobody reads, which is no trouble with the log
    except (OSError, StartupError, DamagedLogError, BadRegistryError) as e:
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
    return EXIT_WHOLE if whole else EXIT_DAMAGED


def _print_report(report: SegmentReport) -> None:
    remarks = [_sentence(damage) for damage in report.damages]
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
        "damages": [_damage(damage) for damage in report.damages],
    }


def _damage(damage: Damage) -> dict[str, Any]:
    lost = [
        {"virtual_topic": part.topic.key, "first_offset": part.first, "last_offset": part.end - 1}
        for part in damage.lost
    ]
    return {
        "segment": damage.segment,
        "start": damage.start,
        "end": damage.end,
        "reason": damage.reason,
        "lost": lost,
    }


def _sentence(damage: Damage) -> str:
    whose = ", ".join(
        f"{part.topic.key} offsets {part.first} to {part.end - 1}" for part in damage.lost
    )
    place = f"positions {damage.start} to {damage.end}: " if damage.end else ""
    return f"damaged: {place}{damage.reason}" + (f"; {whose}" if whose else "")


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
    """What is in a segment, and whether it is good."""
    for found in entries(disk, number):
        if isinstance(found, (Bad, Torn)):
            kind = "damaged" if isinstance(found, Bad) else "torn"
            about: dict[str, Any] = {
                "segment": number, "position": found.start, kind: found.reason,
            }  # fmt: skip
        else:
            topic = VirtualTopicId(
                found.org_id, found.topic_hash, found.partition, found.generation
            )
            about = {
                "segment": number,
                "position": found.position,
                "id": found.global_id,
                "virtual_topic": topic.key,
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


# --- repair -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Repair:
    """Says what it is going to do, asks, does it, and looks again."""

    data: Path
    format: str
    yes: bool

    async def run(self) -> int:
        folder = DataFolder(self.data)
        folder.hold()
        try:
            return await self._held(RealDisk(folder.wal))
        finally:
            folder.release()

    async def _held(self, disk: RealDisk) -> int:
        found: list[Damage] = []
        indexes: list[int] = []
        for report in verify(disk):
            found += [damage for damage in report.damages if damage.lost]
            if report.index_fault is not None:
                indexes.append(report.number)
        log = await self._open(disk)
        known = {(damage.segment, damage.start) for damage in log.damages}
        every = [*log.damages, *(d for d in found if (d.segment, d.start) not in known)]
        if not every and not indexes:
            await log.close()
            self._say({"repaired": []}, "nothing is damaged")
            return EXIT_WHOLE
        if not self.yes and not self._agreed(every, indexes):
            await log.close()
            return EXIT_DAMAGED
        numbers = await log.repair(found)
        for number in indexes:
            if index_name(number) in disk.names() and number not in numbers:
                disk.remove(index_name(number))
        disk.sync_names()
        # Makes the indexes again, and a checkpoint of what there is now.
        log = await self._open(disk)
        left = list(log.damages)
        await log.close()
        about = {"repaired": [_damage(damage) for damage in every], "indexes": indexes}
        self._say(about, f"repaired: {len(every)} damaged places, {len(indexes)} indexes")
        return EXIT_DAMAGED if left else EXIT_WHOLE

    async def _open(self, disk: RealDisk) -> Log:
        log = Log(disk, FsyncPolicy(), _SEGMENT_BYTES)
        state = BrokerState(BrokerConfig(data=self.data), log)
        log.open(state.producers)
        log.start()
        try:
            await state.replay_registry()
        except StorageError as e:
            message = f"the topic registry cannot be read ({e}): no topic is taken for deleted"
            print(f"quafka: {message}", file=sys.stderr)
            log.settle(dict.fromkeys(log.topics()))
        return log

    def _agreed(self, damages: Sequence[Damage], indexes: Sequence[int]) -> bool:
        for damage in damages:
            print(f"segment {damage.segment}: {_sentence(damage)}")
        for number in indexes:
            print(f"segment {number}: its index will be made again")
        print("What is lost stays lost; consumers will go on behind it. Repair? [y/N] ", end="")
        sys.stdout.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    def _say(self, about: dict[str, Any], sentence: str) -> None:
        print(json.dumps(about) if self.format == "json" else sentence)
