"""`quafka wal repair`: replaces damaged records, and restores the names of nameless topics."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quafka.wal.reports import EXIT_DAMAGED, EXIT_WHOLE, as_json, sentence
from quafka_broker.config.settings import BrokerConfig
from quafka_broker.partitions.partition import topic_hash
from quafka_broker.state import BrokerState
from quafka_broker.topics.topic import Unnamed
from quafka_broker.wal.checkpoint_file import faults_of
from quafka_broker.wal.data_folder import DataFolder
from quafka_broker.wal.disk import Disk, RealDisk
from quafka_broker.wal.fsync import FsyncPolicy
from quafka_broker.wal.log import Log
from quafka_broker.wal.quarantine import SegmentDamage
from quafka_broker.wal.segment import index_name
from quafka_broker.wal.trial_disk import TrialDisk
from quafka_broker.wal.verify import verify
from quafka_telemetry.startup import StartupError

_SEGMENT_BYTES = 1 << 30


@dataclass(slots=True)
class _Found:
    """The repairs to make.

    Attributes:
        read: damage that only reading every byte finds.
        damages: all damage.
        indexes: numbers of the segments with a wrong index.
        checkpoints: names of the damaged checkpoints.
        named: nameless topics that get a name.
        dropped, kept: nameless topics whose records are deleted, or kept.
    """

    read: list[SegmentDamage] = field(default_factory=list[SegmentDamage])
    damages: list[SegmentDamage] = field(default_factory=list[SegmentDamage])
    indexes: list[int] = field(default_factory=list[int])
    checkpoints: list[str] = field(default_factory=list[str])
    named: dict[Unnamed, str] = field(default_factory=dict[Unnamed, str])
    dropped: list[Unnamed] = field(default_factory=list[Unnamed])
    kept: list[Unnamed] = field(default_factory=list[Unnamed])

    @property
    def work(self) -> bool:
        """Whether there is anything to repair."""
        return bool(self.damages or self.indexes or self.checkpoints or self.named or self.dropped)


@dataclass(frozen=True, slots=True)
class Repair:
    """Prints the planned repairs, asks for consent, repairs, and verifies the result.

    Attributes:
        yes: do not ask. Topics that are not in `drops` are never dropped.
        names: names of nameless topics, each optionally preceded by "HASH=".
        drops: hashes of the nameless topics whose records are deleted.
    """

    data: Path
    format: str = "text"
    yes: bool = False
    names: Sequence[str] = ()
    drops: Sequence[str] = ()

    async def run(self) -> int:
        """Returns the exit code.

        Raises:
            StartupError: a broker holds the folder, or a name or hash matches no nameless topic.
            OSError, DamagedLogError, BadRegistryError, StorageError: the log cannot be opened.
        """
        folder = DataFolder(self.data)
        folder.hold()
        try:
            return await self._held(RealDisk(folder.wal))
        finally:
            folder.release()

    async def _held(self, disk: RealDisk) -> int:
        found = _Found(checkpoints=list(faults_of(disk)))
        for report in verify(disk):
            found.read += [damage for damage in report.damages if damage.lost]
            if report.index_fault is not None:
                found.indexes.append(report.number)
        # Opening a log writes a checkpoint and more; without a repair nothing may be written.
        state = await self._open(TrialDisk(disk))
        try:
            known = {(damage.segment, damage.start) for damage in state.log.damages}
            others = (d for d in found.read if (d.segment, d.start) not in known)
            found.damages = [*state.log.damages, *others]
            self._find_names(state, found)
            if not found.work:
                return self._end(found, found.damages)
            if not self.yes and not self._agreed(found, state):
                return EXIT_DAMAGED
        finally:
            await state.log.close()
        return await self._repaired(disk, found)

    async def _repaired(self, disk: RealDisk, found: _Found) -> int:
        state = await self._open(disk)
        try:
            if found.damages or found.indexes:
                state = await self._settle(disk, state, found)
            for unnamed, name in found.named.items():
                await state.topics.create(unnamed.org, name, 1)
            for unnamed in found.dropped:
                await state.topics.drop_unnamed(unnamed)
            return self._end(found, state.log.damages)
        finally:
            await state.log.close()  # writes a checkpoint of the repaired state

    async def _settle(self, disk: RealDisk, state: BrokerState, found: _Found) -> BrokerState:
        """Rewrite damaged segments, and remove wrong indexes so that opening rebuilds them."""
        numbers = await state.log.repair(found.read)
        for number in found.indexes:
            if index_name(number) in disk.names() and number not in numbers:
                disk.remove(index_name(number))
        disk.sync_names()
        return await self._open(disk)

    async def _open(self, disk: Disk) -> BrokerState:
        log = Log(disk, FsyncPolicy(), _SEGMENT_BYTES)
        state = BrokerState(BrokerConfig(data=self.data), log)
        log.open(state.producers)
        log.start()
        await state.replay_registry()
        await state.replay_groups()
        return state

    # --- names ----------------------------------------------------------------------------------

    def _find_names(self, state: BrokerState, found: _Found) -> None:
        """Decide what becomes of each nameless topic.

        Raises:
            StartupError: a given name or hash matches none of them.
        """
        from_groups = {
            (key[0], topic_hash(key[0], name)): name
            for key, offsets in state.groups.offsets.of_every_group()
            for (name, _), _ in offsets
        }
        given = [name.rpartition("=")[2] for name in self.names]
        drops = {text.lower() for text in self.drops}
        for unnamed in state.registry.unnamed:
            names = [name for name in given if topic_hash(unnamed.org, name) == unnamed.hash]
            name = names[0] if names else from_groups.get(unnamed[:2])
            if unnamed.hash.hex() in drops:
                found.dropped.append(unnamed)
            elif name is not None and state.registry.by_name(unnamed.org, name) is None:
                found.named[unnamed] = name
            else:
                found.kept.append(unnamed)
        self._check_given(state, given, drops)

    def _check_given(self, state: BrokerState, given: Sequence[str], drops: set[str]) -> None:
        known = list(state.registry.unnamed)
        for text, name in zip(self.names, given, strict=True):
            hashes = {u.hash.hex() for u in known if topic_hash(u.org, name) == u.hash}
            wanted = text.rpartition("=")[0].lower()
            if not hashes or (wanted and wanted not in hashes):
                raise StartupError(f"the name {name!r} matches no nameless topic")
        for text in drops - {unnamed.hash.hex() for unnamed in known}:
            raise StartupError(f"no nameless topic has the hash {text}")

    # --- output ---------------------------------------------------------------------------------

    def _agreed(self, found: _Found, state: BrokerState) -> bool:
        for damage in found.damages:
            print(f"segment {damage.segment}: {sentence(damage)}")
        for number in found.indexes:
            print(f"segment {number}: the index will be rebuilt")
        for name in found.checkpoints:
            print(f"{name}: damaged; a new one will be written")
        for unnamed, name in found.named.items():
            print(f"{_about(unnamed, state)}: will be served again as {name!r}")
        for unnamed in found.kept:
            print(f"{_about(unnamed, state)}: will be kept; --name restores its name")
        for unnamed in found.dropped:
            print(f"{_about(unnamed, state)}: its records will be deleted")
        print("Lost records stay lost; consumers will continue after them. Repair? [y/N] ", end="")
        sys.stdout.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    def _end(self, found: _Found, left: Sequence[SegmentDamage]) -> int:
        if self.format == "json":
            print(json.dumps(_as_json(found)))
        elif not found.work:
            print("nothing is damaged" if not found.kept else "nothing can be repaired")
        else:
            print(
                f"repaired: {len(found.damages)} damaged places, {len(found.indexes)} indexes"
                + (f", {len(found.checkpoints)} checkpoints" if found.checkpoints else "")
                + (f", {len(found.named)} topics" if found.named else "")
            )
        for unnamed in found.kept if self.format == "text" else ():
            print(
                f"a nameless topic of org {unnamed.org} is kept: "
                f"hash {unnamed.hash.hex()}; --name restores its name"
            )
        return EXIT_DAMAGED if left or found.kept else EXIT_WHOLE


def _about(unnamed: Unnamed, state: BrokerState) -> str:
    partitions = state.registry.unnamed[unnamed]
    ends = (
        state.log.partitions.offsets(unnamed.partition_id(partition))
        for partition in range(partitions)
    )
    records = sum(end - start for start, end in ends)
    return (
        f"a nameless topic of org {unnamed.org} (hash {unnamed.hash.hex()}, "
        f"{partitions} partitions, {records} records)"
    )


def _as_json(found: _Found) -> dict[str, Any]:
    decisions = [
        *((unnamed, name, "restored") for unnamed, name in found.named.items()),
        *((unnamed, None, "dropped") for unnamed in found.dropped),
        *((unnamed, None, "kept") for unnamed in found.kept),
    ]
    topics = [
        {"org": unnamed.org, "hash": unnamed.hash.hex(), "name": name, "topic": decision}
        for unnamed, name, decision in decisions
    ]
    return {
        "repaired": [as_json(damage) for damage in found.damages],
        "indexes": found.indexes,
        "checkpoints": found.checkpoints,
        "topics": topics,
    }
