"""The damage sweep: damages each kind of file of a data folder in each way, and checks the result.

`FILES` is the table. A data folder is made with topics, deleted ones, groups, idempotent producers,
transactions, retention, rewritten and freed segments, two checkpoints, a pin and zones. Each case
copies it, damages one file, and checks the promises of docs/wal.md:

- the broker starts (or refuses to, naming the file), serves all records outside the damage, and
  reports exactly the others as lost;
- no aborted record becomes visible to read_committed consumers, no committed one invisible unless
  the damage took the transaction's end, and no last stable offset stays behind;
- with the good file back, everything is served, and nothing is reported;
- without it, `wal verify` reports the damage, `wal repair` settles it and drops nothing intact.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import os
import random
import shutil
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from quafka.cli import main
from quafka_broker.config.settings import BrokerConfig
from quafka_broker.groups.table import Commit, Committed
from quafka_broker.journals.internal_topics import (
    GROUPS,
    INTERNAL_NAMES,
    SECURITY,
    SHARES,
    TRANSACTIONS,
)
from quafka_broker.ops import partitions, share_groups
from quafka_broker.partitions.errors import CorruptError
from quafka_broker.partitions.partition import PartitionId, partition_of, topic_hash
from quafka_broker.partitions.producer_state import SequenceError
from quafka_broker.server import Broker
from quafka_broker.snapshots.pins import pin
from quafka_broker.snapshots.zone_cache import fill_zone_cache
from quafka_broker.state import BrokerState
from quafka_broker.topics.topic import Topic
from quafka_broker.wal.disk import RealDisk
from quafka_broker.wal.fsync import FsyncPolicy
from quafka_broker.wal.log import Log
from quafka_broker.wal.rewrite_task import RewritePolicy
from quafka_broker.wal.runs import Room
from quafka_broker.wal.verify import entries
from quafka_mesh_ops.ops.admin import CreatePartitions
from quafka_mesh_ops.ops.consumer_groups import ConsumerHeartbeat
from quafka_mesh_ops.ops.security import UserChange
from quafka_mesh_ops.ops.share_groups import ShareGroupTopics, ShareHeartbeat
from quafka_proto.log_format import ENTRY_HEADER_SIZE, FILE_HEADER_SIZE, IndexRow
from quafka_proto.record_codec import iter_records
from quafka_proto.records import read_header, split_batches
from quafka_telemetry.startup import StartupError
from quafka_telemetry.tracing import Tracer
from tests.crash.share_workload import ACCEPT, acknowledge, acquire
from tests.unit.broker.test_security import SHA256, rule, user
from tests.unit.broker.tools import ORG, batch_of, context
from tests.unit.broker.transactional import Sender

SEGMENT_BYTES = 10_000
RESERVE_BYTES = 8_192
PAGE = 4_096
_MARKER_VALUE = bytes(6)
FAST = RewritePolicy(bytes_per_second=1 << 40)


class Kind(NamedTuple):
    """A kind of file.

    Attributes:
        name: the name of the kind.
        files: the pattern of their paths in the data folder.
        loses: whether damage may cost the records that it hits.
        verified: whether `wal verify` reports a damaged file, and a missing one.
        refuses: whether the broker refuses to start with a damaged file.
    """

    name: str
    files: str
    loses: bool = False
    verified: tuple[bool, bool] = (False, False)
    refuses: bool = False


FILES = [
    Kind("segment", "wal/*.log", loses=True, verified=(True, True)),
    Kind("index", "wal/*.oidx", verified=(True, True)),
    Kind("checkpoint", "wal/checkpoint-*", verified=(True, False)),
    Kind("leader epoch", "wal/leader-epoch"),
    Kind("reserve", "wal/reserve"),
    Kind("lock", "broker.lock"),
    Kind("node key", "node.key", refuses=True),
    Kind("pin", "pins/*/pin.json"),
    Kind("pinned file", "pins/*/0*"),
    Kind("zones", "zones/*.zones"),
]
"""Every file of a data folder is of one kind. A new format joins by one line."""


def kind_of(path: str) -> Kind:
    """The kind of a file, by its path in the data folder.

    Raises:
        LookupError: the table has none, or several.
    """
    (kind,) = [kind for kind in FILES if fnmatch(path, kind.files)]
    return kind


# --- damage -------------------------------------------------------------------------------------


class Damage(NamedTuple):
    """A damage to a file: bytes [start, end) have changed."""

    what: str
    start: int
    end: int
    apply: Callable[[Path], None]

    def __str__(self) -> str:
        return f"{self.what} at {self.start}"


def flip(at: int) -> Damage:
    """Flip one bit."""

    def apply(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[at] ^= 1 << at % 8
        path.write_bytes(data)

    return Damage("a flipped byte", at, at + 1, apply)


def zero(at: int, size: int) -> Damage:
    """Zero a page."""
    end = min(size, at + PAGE)

    def apply(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[at:end] = bytes(end - at)
        path.write_bytes(data)

    return Damage("a zeroed page", at, end, apply)


def cut(at: int, size: int) -> Damage:
    """Truncate the file."""
    return Damage("a cut end", at, size, lambda path: os.truncate(path, at))


def remove(size: int) -> Damage:
    """Remove the file."""
    return Damage("a missing file", 0, size, Path.unlink)


def damages(path: Path, flips: list[int]) -> Iterator[Damage]:
    """Every way to damage a file."""
    size = path.stat().st_size
    for at in flips:
        yield flip(at)
    for at in range(0, size, PAGE):
        yield zero(at, size)
    for at in sorted({0, size // 2, max(0, size - 1)}) if size else ():
        yield cut(at, size)
    yield remove(size)


# --- the folder ---------------------------------------------------------------------------------


class TransactionEnd(NamedTuple):
    """The end of a transaction in a partition.

    Attributes:
        event: the offset of the event in the transactions' journal.
        marker: the partition, and the offset of the control batch in it.
    """

    commit: bool
    event: int
    marker: tuple[PartitionId, int]


@dataclass
class World:
    """A data folder, and the acknowledged content.

    Attributes:
        records: by topic and partition, values by offset, without deleted records.
        offsets: committed offsets, by group and topic.
        places: every entry of every segment file.
        gone: names of deleted topics.
        ends: by topic, partition and offset of a transactional record, whether its transaction
            was committed, and the places of its end: the event and the control batch.
    """

    folder: Path
    records: dict[tuple[str, int], dict[int, bytes]] = field(default_factory=dict)
    offsets: dict[tuple[str, str], int] = field(default_factory=dict)
    places: dict[str, list[IndexRow]] = field(default_factory=dict)
    last_sequence: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    gone: tuple[str, ...] = ("gone",)
    ends: dict[tuple[str, int, int], TransactionEnd] = field(default_factory=dict)
    producer_id: int = 0
    security: frozenset[str] = frozenset()
    """What `security_of` shows."""
    dealt_with: frozenset[int] = frozenset()
    """What `dealt_with` shows."""

    def hit(self, path: str, damage: Damage) -> set[tuple[PartitionId, int]]:
        """The records whose entries a damage touches."""
        if damage.what == "a missing file":
            rows = self.places[path]
        else:
            rows = [
                row
                for row in self.places[path]
                if row.position < damage.end and damage.start < row.end
            ]
        return {
            (partition_of(row), offset)
            for row in rows
            for offset in range(row.base_offset, row.base_offset + row.record_count)
        }


@contextlib.asynccontextmanager
async def opened(folder: Path) -> AsyncGenerator[BrokerState]:
    """A broker's state on a folder, without a mesh."""
    (folder / "wal").mkdir(exist_ok=True)
    log = Log(RealDisk(folder / "wal"), FsyncPolicy(), SEGMENT_BYTES, reserve_bytes=RESERVE_BYTES)
    state = BrokerState(BrokerConfig(data=folder), log)
    log.open(state.producers)
    log.start()
    try:
        await state.replay_registry()
        await state.replay_security()
        await state.start_groups()
        yield state
    finally:
        state.groups.drain()
        await state.groups.close()
        await log.close()


async def build(folder: Path) -> World:
    """Make a data folder with something of everything."""
    world = World(folder)
    await started(folder)
    async with opened(folder) as state:
        await _fill(state, world)
    async with opened(folder) as state:
        await asyncio.to_thread(fill_zone_cache, folder, state.log.segments())
        await pin(state, folder, local=True)
    for path in sorted((folder / "wal").glob("*.log")):
        found = entries(RealDisk(folder / "wal"), int(path.stem))
        name = str(path.relative_to(folder))
        world.places[name] = [row for row in found if isinstance(row, IndexRow)]
    return world


async def _fill(state: BrokerState, world: World) -> None:
    state.groups.journal.facts_kept = 20
    made: dict[str, Topic] = {}
    for name, count in (("a", 2), ("gone", 1), ("b", 1), ("old", 1), ("tx", 2)):
        made[name], _ = await state.topics.create(ORG, name, count)
    world.producer_id = await state.producer_ids.allocate(1)
    senders = [Sender(state, f"transactional {n}", implicit=bool(n)) for n in range(2)]
    for sender in senders:
        assert not await sender.init()
    for turn in range(24):
        for topic in (each for each in made.values() if each.name != "tx"):
            for partition in range(topic.partitions):
                await _produce(state, world, topic, partition, turn)
        await _transact(state, world, senders[turn % 2], made["tx"], turn)
        await _commit(state, world, "readers", made["a"], turn)
        await _commit(state, world, f"once {turn % 3}", made["b"], turn)
        await _change_security(state, turn)
        await _share(state, turn)
        await _consume(state, turn)
        if turn == 8:
            assert not await state.groups.delete_group(ORG, "once 2")
            await state.log.checkpoint()
        if turn == 10:
            await state.topics.delete(made.pop("gone"))
            world.records = {key: kept for key, kept in world.records.items() if key[0] != "gone"}
            world.last_sequence.pop(("gone", 0), None)
        if turn == 12:
            await _retain(state, world, made["old"], 10)
            await state.log.checkpoint()
        if turn == 14:
            made["late"], _ = await state.topics.create(ORG, "late", 1)
            await state.topics.change(made["b"], lambda topic: topic)
        await _join_share_group(state, world, turn)
    await _retain(state, world, made["old"], 40)
    world.security = security_of(state) or frozenset()
    world.dealt_with = dealt_with(state)


async def _consume(state: BrokerState, turn: int) -> None:
    """Members of a group of KIP-848 join and leave: their facts are in the log one by one."""
    heartbeat, names = state.groups.consumer.heartbeat, ("x", "y", "z")
    join = ConsumerHeartbeat(
        "members", names[turn % 3], 0, rebalance_timeout_ms=60_000, topics=["a", "b"], owned=[],
        is_whole=True,
    )  # fmt: skip
    assert not (await heartbeat(ORG, join)).error_code
    if turn % 4 == 3:
        leave = ConsumerHeartbeat("members", names[turn % 3], -1, is_whole=True)
        assert not (await heartbeat(ORG, leave)).error_code


async def _join_share_group(state: BrokerState, world: World, turn: int) -> None:
    """Members of a share group come and go; from turn 14 on they know a topic that grows."""
    names = ["late"] if turn >= 14 else ["a"]
    beat = ShareHeartbeat("sharing", f"m{turn % 3}", 0, topics=names, is_whole=True)
    for epoch in (0, -1)[: 1 + (turn % 4 == 3)]:
        beat = replace(beat, member_epoch=epoch, topics=None if epoch else names)
        assert not (await share_groups.heartbeat(state, context(), beat)).error_code
    if turn == 20:
        grown = await partitions.create(state, context(), CreatePartitions("late", 2))
        assert not grown.error_code
        world.records["late", 1] = {}


async def known_partitions(state: BrokerState) -> int:
    """The partitions that the topic had when the share group learnt it."""
    topic = state.registry.by_name(ORG, "late")
    if topic is None:
        return -1
    question = ShareGroupTopics("sharing", [topic.uuid])
    return (await share_groups.topics(state, context(), question)).first_partitions[0]


async def _change_security(state: BrokerState, turn: int) -> None:
    """Add users and rules; some are removed later, which damage must not undo."""
    names = [f"user {turn}"] if turn % 2 else [f"user {turn - 1}"]
    if turn % 4 == 2:
        gone = UserChange(names[0], SHA256)
        assert await state.security.alter_users(ORG, [gone]) == [None]
    elif turn % 2:
        assert await state.security.alter_users(ORG, [user(names[0])]) == [None]
        assert await state.security.create_acls(ORG, [rule(f"topic {turn}")]) == [None]


def security_of(state: BrokerState) -> frozenset[str] | None:
    """The names of users, and the resources of rules; None if no gateway would get any."""
    if state.security.journal.incomplete:
        return None
    its = state.security.table.of(ORG)
    return frozenset([*its.users, *(acl.resource_name for acl in its.rules)])


async def _share(state: BrokerState, turn: int) -> None:
    """A member of a share group takes two records, and accepts one; sometimes the second one."""
    member = f"member {turn}"
    acquired = await acquire(state, member, 2, "b")
    taken = [at for each in acquired for at in (each.first_offset, each.last_offset)]
    kinds = dict.fromkeys(sorted({taken[turn % 2], taken[0]}), ACCEPT)
    assert not await acknowledge(state, member, kinds, "b")
    if turn == 20:
        await state.shares.journal.shorten()


def dealt_with(state: BrokerState) -> frozenset[int]:
    """The offsets that the share group will not get again."""
    found: set[int] = set()
    for share in state.shares.table:
        found |= set(range(share.window.start))
        for here in share.window.done_from(0):
            found |= set(range(here.first, here.end))
    return frozenset(found)


async def _retain(state: BrokerState, world: World, topic: Topic, start: int) -> None:
    """Delete the first records of a topic, and free dead records."""
    await state.topics.delete_records({topic: {0: start}})
    key = (topic.name, 0)
    world.records[key] = {o: v for o, v in world.records[key].items() if o >= start}
    rewriting = state.log.rewrite_task(FAST, lambda: state.journal.deletions)
    await rewriting.run_once()
    await rewriting.close()


async def _produce(
    state: BrokerState, world: World, topic: Topic, partition: int, turn: int
) -> None:
    id_ = topic.partition_id(partition)
    values = [b"%s %d %d" % (topic.name.encode(), turn, n) * 3 for n in range(2)]
    batch = batch_of(*values, producer=(world.producer_id, 0, turn * 2))
    ((header, view),) = split_batches(batch)
    settle = state.producers.begin_append(id_, header)
    (offset,) = await state.log.queue.append(
        state.log.partitions.get(id_), [(header, view)], settle=settle
    )
    kept = world.records.setdefault((topic.name, partition), {})
    kept.update(enumerate(values, offset))
    world.last_sequence[topic.name, partition] = turn * 2, offset


async def _transact(
    state: BrokerState, world: World, sender: Sender, topic: Topic, turn: int
) -> None:
    """A transaction over all partitions of a topic; every third one is aborted."""
    commit = bool(turn % 3)
    places: list[tuple[int, int]] = []
    for partition in range(topic.partitions):
        value = b"transaction %d" % turn
        offset = await sender.write(topic.name, partition, value)
        world.records.setdefault((topic.name, partition), {})[offset] = value
        places.append((partition, offset))
    assert not await sender.end(commit=commit)
    event = state.log.partitions.get(TRANSACTIONS).high_watermark - 1
    for partition, offset in places:
        id_ = topic.partition_id(partition)
        marker = state.log.partitions.get(id_).high_watermark - 1
        world.records[topic.name, partition][marker] = _MARKER_VALUE
        world.ends[topic.name, partition, offset] = TransactionEnd(commit, event, (id_, marker))


async def _commit(state: BrokerState, world: World, group: str, topic: Topic, turn: int) -> None:
    value = Committed(topic.generation, turn, -1, "", 1_000)
    await state.groups.offsets.commit(ORG, group, Commit.of({(topic.name, 0): value}))
    world.offsets[group, topic.name] = turn


# --- what is served -----------------------------------------------------------------------------


async def started(folder: Path) -> None:
    """The program as a whole starts, and stops. Raises StartupError."""
    config = BrokerConfig(
        data=folder,
        mesh_listen="127.0.0.1:0",
        ops_listen="127.0.0.1:0",
        wal_reserve_bytes=RESERVE_BYTES,
    )
    broker = Broker(config, Tracer())
    try:
        await broker.start()
    finally:
        await broker.close()


class Served(NamedTuple):
    """The records and state that a start serves.

    Attributes:
        records: as in `World`; None for a record that is reported as lost.
        lost: the records that the log reports as lost.
        damages: the number of quarantined places.
        aborted: topic, partition and offset of each record that read_committed consumers skip.
        held_back: the partitions whose last stable offset is not the high watermark.
        security: users and rules; None: the start hands out none.
        dealt_with: offsets that the share group does not get again.
        known: as `known_partitions` shows it.
    """

    records: dict[tuple[str, int], dict[int, bytes | None]]
    offsets: dict[tuple[str, str], int]
    topics: set[str]
    lost: set[tuple[PartitionId, int]]
    damages: int
    nameless: int
    forgotten: list[tuple[str, int]]
    aborted: set[tuple[str, int, int]]
    held_back: list[PartitionId]
    security: frozenset[str] | None
    dealt_with: frozenset[int]
    known: int


async def serve(world: World, folder: Path) -> Served:
    """Start on a folder, and read everything."""
    async with opened(folder) as state:
        records: dict[tuple[str, int], dict[int, bytes | None]] = {}
        for topic in state.registry.every_topic():
            for partition in range(topic.partitions):
                placed = await _read_by_place(state, topic.partition_id(partition))
                read = await _read(state, topic.partition_id(partition))
                records[topic.name, partition] = read
                for offset, value in placed.items():
                    assert read[offset] == value, f"{topic.name} offset {offset} by place"
        offsets = {
            (group, place[0]): committed.offset
            for (_, group), kept in state.groups.offsets.of_every_group()
            for place, committed in kept
        }
        lost = {
            (part.partition, offset)
            for damage in state.log.damages
            for part in damage.lost
            for offset in range(part.first, part.end)
        }
        return Served(
            records,
            offsets,
            {topic.name for topic in state.registry.every_topic()},
            lost,
            len(state.log.damages),
            len(state.registry.unnamed),
            _forgotten(world, state),
            {key for key in world.ends if _is_aborted(state, key)},
            [
                id_
                for id_ in state.log.partitions.ids()
                for found in [state.log.partitions.get(id_)]
                if found.last_stable_offset != found.high_watermark
            ],
            security_of(state),
            dealt_with(state),
            await known_partitions(state),
        )


def _is_aborted(state: BrokerState, key: tuple[str, int, int]) -> bool:
    """Whether the record is in a transaction that counts as aborted."""
    name, number, offset = key
    topic = state.registry.by_name(ORG, name)
    assert topic is not None
    partition = state.log.partitions.get(topic.partition_id(number))
    return any(
        each.first_offset <= offset <= each.last_offset
        for each in partition.aborted(offset, offset + 1)
    )


async def _read_by_place(state: BrokerState, id_: PartitionId) -> dict[int, bytes]:
    """What a gateway reads of a partition from the files, once they are verified."""
    partition = state.log.partitions.get(id_)
    verification = state.log.verification
    found: dict[int, bytes] = {}
    offset = partition.log_start
    while offset < partition.high_watermark:
        try:
            runs = await state.log.reader.locate(partition, offset, Room(1 << 20, 1_000))
        except CorruptError:
            offset += 1
            continue
        for run in runs:
            verification.is_good(run.segment)
            while verification.busy:
                await asyncio.sleep(0)
        for run in runs:
            for row in run.rows:
                offset = row.base_offset + row.record_count
                if not verification.is_good(run.segment):
                    continue
                batch = run.segment.log.read(row.position + ENTRY_HEADER_SIZE, row.length)
                for record in iter_records(batch):
                    if record.offset >= partition.log_start:
                        found[record.offset] = record.value or b""
    return found


async def _read(state: BrokerState, id_: PartitionId) -> dict[int, bytes | None]:
    """Every offset of a partition, read like a consumer that skips lost records."""
    partition = state.log.partitions.get(id_)
    found: dict[int, bytes | None] = {}
    offset = partition.log_start
    while offset < partition.high_watermark:
        try:
            batches = await state.log.reader.read(partition, offset, 1 << 20, at_least_one=True)
        except CorruptError:
            found[offset] = None
            offset += 1
            continue
        for batch in batches:
            for record in iter_records(batch):
                if record.offset >= offset:
                    found[record.offset] = record.value or b""
            header = read_header(batch)
            offset = header.base_offset + header.last_offset_delta + 1
    return found


def _forgotten(world: World, state: BrokerState) -> list[tuple[str, int]]:
    """The partitions where the idempotent producer's last batch would be stored twice."""
    forgotten: list[tuple[str, int]] = []
    for (name, partition), (sequence, offset) in world.last_sequence.items():
        topic = state.registry.by_name(ORG, name)
        if topic is None:
            continue
        batch = batch_of(b"1", b"2", producer=(world.producer_id, 0, sequence))
        ((header, _),) = split_batches(batch)
        try:
            known = state.producers.duplicate_of(topic.partition_id(partition), header)
        except SequenceError:
            known = None
        if known is None or known.offset != offset:
            forgotten.append((name, partition))
    return forgotten


# --- a case -------------------------------------------------------------------------------------


class BrokenPromiseError(AssertionError):
    """A promise of the manual does not hold."""


@dataclass(frozen=True)
class Case:
    """One damage to one file."""

    path: str
    damage: Damage

    def __str__(self) -> str:
        return f"{self.path}: {self.damage}"

    def run(self, world: World, scratch: Path) -> None:
        """Check everything. Raises BrokenPromiseError."""
        kind = kind_of(self.path)
        folder, good = scratch / "data", world.folder / self.path
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(world.folder, folder)
        changed = self._apply(folder / self.path)
        if kind.refuses:
            self._refused(folder, changed)
            return
        self._verified(folder, kind, changed)
        if not kind.files.startswith("wal/"):
            asyncio.run(started(folder))
        served = asyncio.run(serve(world, folder))
        hit = world.hit(self.path, self.damage) if kind.loses and changed else set()
        self._check(world, served, hit)
        repaired = scratch / "repaired"
        shutil.rmtree(repaired, ignore_errors=True)
        shutil.copytree(folder, repaired)
        if kind.loses or kind.name == "index":
            shutil.copyfile(good, folder / self.path)
            self._check(world, asyncio.run(serve(world, folder)), set())
        self._repaired(world, repaired, hit)

    def _apply(self, path: Path) -> bool:
        before = path.read_bytes()
        self.damage.apply(path)
        return not path.exists() or path.read_bytes() != before

    def _fail(self, why: str) -> None:
        raise BrokenPromiseError(f"{self}: {why}")

    def _expect(self, holds: bool, why: str) -> None:
        if not holds:
            self._fail(why)

    def _refused(self, folder: Path, changed: bool) -> None:
        try:
            asyncio.run(started(folder))
        except StartupError as e:
            self._expect(Path(self.path).name in str(e), f"the refusal names no file: {e}")
        else:
            # A flipped byte may give another valid key, and a cut may take only the final newline.
            harmless = self.damage.end - self.damage.start <= 1
            missing = self.damage.what == "a missing file"
            self._expect(missing or harmless or not changed, "the broker has started")

    def _verified(self, folder: Path, kind: Kind, changed: bool) -> None:
        missing = self.damage.what == "a missing file"
        expected = changed and kind.verified[missing]
        code, said = command("wal", "verify", str(folder))
        self._expect(code == int(expected), f"verify ends with {code}: {said}")

    def _check(self, world: World, served: Served, hit: set[tuple[PartitionId, int]]) -> None:
        names = {name for name, _ in world.records}
        self._expect(names == served.topics, f"topics: {served.topics} instead of {names}")
        self._expect(not served.nameless, "a topic has lost its name")
        self._expect(served.offsets == world.offsets, f"offsets: {served.offsets}")
        lost_any = False
        for key, expected in world.records.items():
            found = served.records[key]
            self._expect(found.keys() == expected.keys(), f"{key}: offsets {sorted(found)}")
            for offset, value in expected.items():
                may_be_lost = any(
                    at == offset and id_.partition == key[1] and id_ in self._ids(key)
                    for id_, at in hit
                )
                lost = found[offset] is None
                lost_any |= lost
                self._expect(
                    found[offset] == value or (lost and may_be_lost),
                    f"{key} offset {offset}: {found[offset]!r}",
                )
        wrong = {item for item in served.lost if item[0] not in INTERNAL_NAMES} - hit
        self._expect(not wrong, f"reported as lost: {wrong}")
        self._expect(not lost_any or bool(served.damages), "nobody reports the damage")
        self._expect(not served.held_back, f"held back: {served.held_back}")
        for place, end in world.ends.items():
            taken = {(TRANSACTIONS, end.event), end.marker} <= hit
            self._expect(
                (place in served.aborted) is not end.commit or (taken and end.commit),
                f"{place}: {'committed' if end.commit else 'aborted'}, and taken for the opposite",
            )
        refused = served.security is None and any(id_ == SECURITY for id_, _ in hit)
        self._expect(
            served.security == world.security or refused, f"users and rules: {served.security}"
        )
        again = world.dealt_with - served.dealt_with
        hits_shares = any(id_ == SHARES for id_, _ in hit)
        self._expect(served.dealt_with <= world.dealt_with, "a share group has lost records")
        self._expect(not again or hits_shares, f"a share group gets again: {sorted(again)}")
        hits_groups = any(id_ == GROUPS for id_, _ in hit)
        self._expect(served.known == 1 or hits_groups, f"{served.known} partitions were known")
        if not hit:
            self._expect(not served.forgotten, f"producers forgotten: {served.forgotten}")

    def _ids(self, key: tuple[str, int]) -> set[PartitionId]:
        hash_ = topic_hash(ORG, key[0])
        return {PartitionId(ORG, hash_, key[1], generation) for generation in range(3)}

    def _repaired(self, world: World, folder: Path, hit: set[tuple[PartitionId, int]]) -> None:
        code, said = command("wal", "repair", str(folder), "--yes")
        self._expect(code == 0, f"repair ends with {code}: {said}")
        code, said = command("wal", "verify", str(folder))
        self._expect(code == 0, f"after the repair, verify ends with {code}: {said}")
        served = asyncio.run(serve(world, folder))
        self._expect(not served.damages, "damage is left after the repair")
        empty = {
            key: {offset: found.get(offset) for offset in world.records[key]}
            for key, found in served.records.items()
        }
        for key, found in served.records.items():
            self._expect(found.keys() <= world.records[key].keys(), f"{key}: other offsets")
        self._expect(served.security is not None, "users and rules are refused after the repair")
        given_up = world.security if any(id_ == SECURITY for id_, _ in hit) else served.security
        served = served._replace(records=empty, damages=1, security=given_up)
        self._check(world, served, hit)


def command(*arguments: str) -> tuple[int, str]:
    """Run `quafka`; returns its exit code and output."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main(arguments)
    return code, said.getvalue()


# --- the sweep ----------------------------------------------------------------------------------


def cases(world: World, flips: int, seed: int = 0) -> Iterator[Case]:
    """Every file, damaged in every way. `flips`: bytes flipped in each file, one at a time.

    In a segment, they include one byte of each entry of each internal topic.
    """
    rng = random.Random(seed)
    for path in sorted(world.folder.rglob("*")):
        name = str(path.relative_to(world.folder))
        if not path.is_file() or path.is_socket():
            continue
        kind_of(name)
        size = path.stat().st_size
        places = {0, size - 1, *(rng.randrange(size) for _ in range(flips))} if size else set[int]()
        places |= set(_internal(world, name, rng))
        places |= {at for at in (FILE_HEADER_SIZE,) if at < size}
        for damage in damages(path, sorted(places)):
            yield Case(name, damage)


def _internal(world: World, name: str, rng: random.Random) -> Iterator[int]:
    for row in world.places.get(name, ()):
        if partition_of(row) in INTERNAL_NAMES:
            yield rng.randrange(row.position, row.end)


def thinned(world: World, count: int, seed: int = 0) -> list[Case]:
    """Some cases of every kind of file and of damage, chosen by the seed."""
    rng = random.Random(seed)
    groups: dict[tuple[str, str], list[Case]] = {}
    for case in cases(world, flips=2, seed=seed):
        groups.setdefault((kind_of(case.path).name, case.damage.what), []).append(case)
    chosen = [rng.choice(group) for group in groups.values()]
    rest = [case for group in groups.values() for case in group if case not in chosen]
    return chosen + rng.sample(rest, max(0, count - len(chosen)))


def sweep(scratch: Path, flips: int, seed: int, said: Callable[[object], None]) -> int:
    """Run all cases; returns the number of broken promises."""
    (scratch / "original").mkdir()
    world = asyncio.run(build(scratch / "original"))
    broken = count = 0
    logging.disable(logging.CRITICAL)
    for case in cases(world, flips, seed):
        count += 1
        try:
            case.run(world, scratch)
        except Exception as e:
            broken += 1
            said(f"{case}: {type(e).__name__}: {e}")
    logging.disable(logging.NOTSET)
    said(json.dumps({"cases": count, "broken": broken}))
    return broken
