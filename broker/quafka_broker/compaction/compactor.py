"""Chooses the partitions to compact, and makes passes over them.

A pass rewrites sealed segments, and a segment holds the records of many topics. So a pass takes all
due partitions that are worth rewriting their segments: a segment is rewritten if a sixteenth of its
bytes are dirty, or after `log.cleaner.max.wait.ms`. The keys of a pass share one map in bounded
memory, of which each org has a share; keys that do not fit are left to the next pass.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from quafka_broker.compaction.cleaner import Cleaner, PassTarget
from quafka_broker.compaction.status import CompactionStatus, LastPass
from quafka_broker.compaction.targets import cleanable_end, map_keys, target_of
from quafka_broker.leases import Leases
from quafka_broker.partitions.errors import CorruptError, OffsetGoneError, StorageError
from quafka_broker.partitions.partition import Partition, PartitionId
from quafka_broker.partitions.producers import Producers
from quafka_broker.topics.configs import CompactionPolicy
from quafka_broker.topics.effective_configs import EffectiveConfigs
from quafka_broker.topics.registry import Registry
from quafka_broker.topics.retention import wall_clock_ms
from quafka_broker.topics.topic import Topic
from quafka_broker.wal.log import Log
from quafka_broker.wal.rewrite_task import RewriteTask, StoppedError
from quafka_loop import clock
from quafka_loop.slices import Slices
from quafka_mesh_ops.ops.leases import LeaseChange
from quafka_proto.errors import Malformed

if TYPE_CHECKING:
    from quafka_broker.compaction.offset_map import OffsetMap

log = logging.getLogger("quafka.broker.compaction")

SECTION = "compaction/1"
_PARTITIONS_PER_SLICE = 100
_LOOKUPS_PER_SLICE = 50
_BLOCKED_SECONDS = 3_600.0
_PARTITIONS_PER_BLOCK = 1_000
_WORTH = 16
"""The maximum bytes of segments that are rewritten at once for one dirty byte."""
_SEAL_BYTES = 64 << 20
"""Dirty bytes from which the active segment is sealed."""
_SEAL_LEAST = 1 << 20
"""The limit after `log.cleaner.max.wait.ms`, unless that is 0: every seal makes a segment, and
segments are never merged."""


class _Candidate(NamedTuple):
    """A partition that a pass may include."""

    topic: Topic
    number: int
    partition: Partition
    policy: CompactionPolicy
    status: CompactionStatus


class _PolicyChangedError(Exception):
    """A topic of the pass is no longer compacted."""


class Compactor:
    """The compaction of all compacted topics of one log."""

    def __init__(
        self,
        wal: Log,
        registry: Registry,
        configs: EffectiveConfigs,
        leases: Leases,
        producers: Producers,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._wal = wal
        self._registry = registry
        self._configs = configs
        self._leases = leases
        self._producers = producers
        self._now_ms = now_ms
        self._rewriter: RewriteTask | None = None
        self.passes = self.failures = 0
        """Completed passes and failed runs since the start."""
        self._passes: dict[PartitionId, LastPass] = {}
        self._due_since: dict[PartitionId, float] = {}
        self._blocked: dict[PartitionId, float] = {}  # when reads failed
        self._sealed_at = clock.monotonic()
        self._one = asyncio.Lock()
        self._under_way: dict[asyncio.Task[None], None] = {}

    # --- life -------------------------------------------------------------------------------

    def start(self, rewriter: RewriteTask) -> None:
        """Load the state of earlier passes, and keep it in checkpoints from now on.

        Called once, when the log is settled.
        """
        self._rewriter = rewriter
        for block in self._wal.sections.kept(SECTION):
            for org, topic_hash, number, generation, *values in block:
                id_ = PartitionId(org, topic_hash, number, generation)
                self._passes[id_] = LastPass(*values)
        self._wal.sections.keep(SECTION, self._section)

    async def run(self) -> None:
        """Compact due partitions every `log.cleaner.backoff.ms`, until cancelled."""
        while True:
            await self._back_off()
            if not self._configs.broker.log_cleaner_enable or not self._configs.broker.wal_rewrite:
                continue
            try:
                await self.compact_due()
            except (StorageError, OSError, Malformed) as e:
                self.failures += 1
                log.warning("compaction is put off: %s", e)
            except Exception:  # a bug must not let the log grow for ever
                self.failures += 1
                log.exception("compaction failed; the next run tries again")

    async def _back_off(self) -> None:
        """Wait for `log.cleaner.backoff.ms`; a change of it begins the wait anew."""
        changed = self._configs.backoff_changed
        while True:
            changed.clear()
            try:
                async with asyncio.timeout(self._configs.broker.log_cleaner_backoff_ms / 1000):
                    await changed.wait()
            except TimeoutError:
                return

    async def close(self) -> None:
        """Abandon the passes that `compact` has begun."""
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def _section(self) -> AsyncGenerator[Sequence[Any]]:
        known = list(self._passes.items())
        for at in range(0, len(known), _PARTITIONS_PER_BLOCK):
            some = known[at : at + _PARTITIONS_PER_BLOCK]
            yield [
                (*id_, last.first_dirty, last.at_ms, last.bytes_before, last.bytes_after)
                for id_, last in some
            ]

    # --- status -----------------------------------------------------------------------------

    def status(self, topic: Topic, partition: int) -> CompactionStatus | None:
        """The compaction status of a partition; None if its topic is not compacted.

        Takes microseconds, without I/O.
        """
        policy = self._policy(topic)
        if policy is None:
            return None
        found = self._wal.partitions.find(topic.partition_id(partition))
        if found is None:
            return CompactionStatus(0, 0, 0, 0, due=False, last=None)
        return self._status(found, policy)

    def _policy(self, topic: Topic) -> CompactionPolicy | None:
        return None if topic.source else self._configs.policy(topic).compaction

    def _first_dirty(self, partition: Partition) -> int:
        last = self._passes.get(partition.id)
        return max(partition.log_start, last.first_dirty if last is not None else 0)

    def _status(self, partition: Partition, policy: CompactionPolicy) -> CompactionStatus:
        first = self._first_dirty(partition)
        sealed = partition.first_offset_from(self._wal.sealed_id)
        end = max(first, min(partition.last_stable_offset, sealed))
        if policy.min_lag_ms:
            young = self._now_ms() - policy.min_lag_ms + 1
            block = partition.batches.first_reaching(young, first)
            end = end if block is None else max(first, min(end, block.start))
        below = partition.batches.bytes_below
        clean = below(first) - below(partition.log_start)
        dirty = below(end) - below(first)
        due = _is_due(clean, dirty, policy) or (
            dirty > 0 and self._is_overdue(partition, first, policy)
        )
        return CompactionStatus(first, end, clean, dirty, due, self._passes.get(partition.id))

    def _is_overdue(self, partition: Partition, first: int, policy: CompactionPolicy) -> bool:
        block = partition.batches.block_of(first)
        return block is not None and 0 <= block.max_timestamp < self._now_ms() - policy.max_lag_ms

    # --- what is compacted ------------------------------------------------------------------

    async def compact(self, topic: Topic) -> None:
        """Compact all partitions of a topic now, up to their ends, regardless of dirty ratios.

        The active segment is sealed first.

        Raises:
            StorageError: this is impossible now; a part of the work may be done.
        """
        task = asyncio.create_task(self._compact_all(topic))
        self._under_way[task] = None
        task.add_done_callback(self._under_way.pop)
        try:
            await asyncio.shield(task)
        except (OSError, Malformed, StoppedError) as e:
            raise StorageError(f"topic {topic.name!r} cannot be compacted: {e}") from e

    async def _compact_all(self, topic: Topic) -> None:
        async with self._one:
            await self._wal.seal()
            found = await self._candidates([topic])
            while found and await self._pass(found):
                dirty = {each.partition.id: each.status.first_dirty for each in found}
                found = [  # partitions with only a part of their keys in the map
                    each
                    for each in await self._candidates([topic])
                    if dirty.get(each.partition.id, 0)
                    < each.status.first_dirty
                    < each.status.cleanable_end
                ]

    async def compact_due(self) -> int:
        """Compact due partitions that are worth it; returns their number.

        Raises:
            StorageError, OSError, Malformed: a part of the work may be done.
        """
        async with self._one:
            candidates = await self._candidates(list(self._registry.every_topic()))
            if await self._seal_if_worth(candidates):  # what was in the active segment counts now
                candidates = await self._candidates(list(self._registry.every_topic()))
            known = {each.partition.id for each in candidates}
            self._passes = {id_: last for id_, last in self._passes.items() if id_ in known}
            self._blocked = {id_: at for id_, at in self._blocked.items() if id_ in known}
            due = [each for each in candidates if each.status.due and not self._is_blocked(each)]
            begun = {each.partition.id: self._due_since.get(each.partition.id) for each in due}
            self._due_since = {id_: at or clock.monotonic() for id_, at in begun.items()}
            return await self._pass(await self._worth_it(due))

    async def _candidates(self, topics: Iterable[Topic]) -> list[_Candidate]:
        found: list[_Candidate] = []
        slices = Slices(_PARTITIONS_PER_SLICE)
        for topic in topics:
            policy = self._policy(topic)
            await slices.done()
            for number in range(topic.partitions) if policy is not None else ():
                partition = self._wal.partitions.find(topic.partition_id(number))
                if partition is not None and policy is not None:
                    status = self._status(partition, policy)
                    found.append(_Candidate(topic, number, partition, policy, status))
                await slices.done()
        return found

    async def _worth_it(self, due: Iterable[_Candidate]) -> list[_Candidate]:
        """The candidates whose dirty bytes are worth a rewrite, or that have waited long enough."""
        patience = self._configs.broker.log_cleaner_max_wait_ms / 1000
        chosen: list[_Candidate] = []
        segments: dict[int, int] = {}
        slices = Slices(_LOOKUPS_PER_SLICE)
        for each in sorted(due, key=lambda each: each.status.dirty_bytes, reverse=True):
            await slices.done()
            own = self._open_rewriter.sealed_with(each.partition)
            cost = sum(size for number, size in own.items() if number not in segments)
            since = self._due_since[each.partition.id]
            if (
                cost <= _WORTH * each.status.dirty_bytes
                or clock.monotonic() - since >= patience
                or self._is_overdue(each.partition, each.status.first_dirty, each.policy)
            ):
                chosen.append(each)
                segments |= own
        return chosen

    def _is_blocked(self, each: _Candidate) -> bool:
        """Whether a read of the partition has recently failed."""
        since = self._blocked.get(each.partition.id)
        return since is not None and clock.monotonic() - since < _BLOCKED_SECONDS

    async def _seal_if_worth(self, candidates: Iterable[_Candidate]) -> bool:
        """Seal the active segment if it delays the compaction of many bytes, or for too long.

        Returns whether it was sealed.
        """
        dirty, overdue = 0, False
        for partition, policy, status in ((c.partition, c.policy, c.status) for c in candidates):
            below = partition.batches.bytes_below
            first = max(status.first_dirty, partition.first_offset_from(self._wal.sealed_id))
            active = below(partition.last_stable_offset) - below(first)
            if _is_due(status.clean_bytes, status.dirty_bytes + active, policy):
                dirty += max(0, active)
            overdue |= active > 0 and self._is_overdue(partition, first, policy)
        patience = self._configs.broker.log_cleaner_max_wait_ms / 1000
        least = _SEAL_LEAST if patience else 1
        waited = dirty >= least and clock.monotonic() - self._sealed_at >= patience
        if not (dirty >= _SEAL_BYTES or waited or overdue):
            return False
        await self._wal.seal()
        self._sealed_at = clock.monotonic()
        return True

    # --- a pass -----------------------------------------------------------------------------

    async def _pass(self, chosen: Sequence[_Candidate]) -> int:
        """Make one pass over these partitions; returns the number of included ones."""
        now_ms, begun = self._now_ms(), clock.monotonic()
        offsets = await asyncio.to_thread(
            _new_map, self._configs.broker.log_cleaner_dedupe_buffer_size
        )
        cleaner = Cleaner(offsets, now_ms)
        targets: list[PassTarget] = []
        names: dict[PartitionId, tuple[Topic, int]] = {}
        for each, share in _with_shares(chosen, offsets.capacity):
            try:
                target = await self._map(each, cleaner, offsets, share, now_ms)
            except (CorruptError, Malformed) as e:
                self._blocked[each.partition.id] = clock.monotonic()
                log.warning("partition %s is not compacted: %s", each.partition.id.key, e)
                continue
            except OffsetGoneError:
                continue
            if target.end > target.first_dirty or target.first_dirty == each.status.cleanable_end:
                cleaner.add(target)
                targets.append(target)
                names[target.id] = each.topic, each.number
        if not targets:
            return 0
        try:
            await self._open_rewriter.compact(cleaner, lambda ids: self._changing(ids, names))
        except _PolicyChangedError as e:
            log.info("a compaction ended early: %s", e)
            return 0
        self._record(targets)
        self.passes += 1
        log.info(
            "%d partitions compacted in %.1f s: %d of %d bytes remain", len(targets),
            clock.monotonic() - begun, sum(t.after for t in targets),
            sum(t.before for t in targets),
        )  # fmt: skip
        return len(targets)

    async def _map(
        self, each: _Candidate, cleaner: Cleaner, offsets: OffsetMap, share: int, now_ms: int
    ) -> PassTarget:
        partition = each.partition
        if self._open_rewriter.is_damaged(partition):
            raise CorruptError("a segment with records of the partition is damaged")
        first = self._first_dirty(partition)
        end = await cleanable_end(self._wal, partition, first, each.policy, now_ms)
        target = target_of(partition, first, end, each.policy, self._producers)
        steps = map_keys(self._open_rewriter, partition, target, cleaner, offsets, share)
        await self._open_rewriter.paced(steps)
        return target

    def _record(self, targets: Iterable[PassTarget]) -> None:
        at_ms = self._now_ms()
        for target in targets:
            self._blocked.pop(target.id, None)
            self._passes[target.id] = LastPass(target.end, at_ms, target.before, target.after)
            self._due_since.pop(target.id, None)
        self._wal.checkpoint_soon()

    @asynccontextmanager
    async def _changing(
        self, ids: Collection[PartitionId], names: dict[PartitionId, tuple[Topic, int]]
    ) -> AsyncGenerator[None]:
        """Announce the removal of batches to the gateways that serve them from memory.

        Raises:
            _PolicyChangedError: a topic is no longer compacted.
        """
        changes: dict[int, list[LeaseChange]] = {}
        for topic, number in (names[id_] for id_ in ids):
            present = self._registry.by_id(topic.org, topic.uuid)
            if present is not None and self._policy(present) is None:
                raise _PolicyChangedError(topic.name)
            changes.setdefault(topic.org, []).append(LeaseChange(topic.name, topic.uuid, number))
        async with self._leases.changing(changes):
            yield

    @property
    def _open_rewriter(self) -> RewriteTask:
        assert self._rewriter is not None, "the compactor has not been started"
        return self._rewriter


def _is_due(clean: int, dirty: int, policy: CompactionPolicy) -> bool:
    return dirty > 0 and dirty > policy.min_dirty_ratio * (clean + dirty)


def _new_map(most_bytes: int) -> OffsetMap:
    """Make a map. Call it in a thread: the first call imports numpy (150 ms, 11 MB)."""
    from quafka_broker.compaction.offset_map import OffsetMap

    return OffsetMap(most_bytes)


def _with_shares(chosen: Iterable[_Candidate], capacity: int) -> list[tuple[_Candidate, int]]:
    """The partitions by org, each with the number of keys that the map may have after it.

    The share that an org does not use is available to the following ones.
    """
    by_org: dict[int, list[_Candidate]] = {}
    for each in chosen:
        by_org.setdefault(each.topic.org, []).append(each)
    return [
        (each, capacity * number // len(by_org))
        for number, some in enumerate(by_org.values(), 1)
        for each in sorted(some, key=lambda each: each.status.cleanable_ratio, reverse=True)
    ]
