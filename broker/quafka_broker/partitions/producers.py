"""Idempotent producers: a batch sent twice is stored once (KIP-98, KIP-360).

The last five batches of each producer id are remembered in each partition, including batches that
are still pending. This state is built from the log's index rows and kept in checkpoints. So it
survives restarts, and retention, which removes the rows. Pure: no I/O; callers pass the time.

| the producer | its batch | answer |
| --- | --- | --- |
| known | repeats one of the last five | the offset of the first copy, or "in doubt" |
| known | is not the next | OUT_OF_ORDER_SEQUENCE_NUMBER |
| known or not | follows one whose write has just failed | KAFKA_STORAGE_ERROR, as that one |
| known from before a restore | is later than the next | stored: the batches between are lost |
| known | has an older epoch | INVALID_PRODUCER_EPOCH |
| known | has a newer epoch, and a sequence above 0 | OUT_OF_ORDER_SEQUENCE_NUMBER |
| never known | has a sequence above 0 | OUT_OF_ORDER_SEQUENCE_NUMBER: an earlier one is missing |
| from before a restore, not known | has any sequence | stored |
| possibly known before | has a sequence above 0 | UNKNOWN_PRODUCER_ID: it begins a new epoch |
| possibly evicted | has any sequence, also 0 | UNKNOWN_PRODUCER_ID: it begins a new epoch |
| any | is none of these | stored |

The number of producers of an org is bounded. Above the bound, the producers that have been silent
for longest are dropped: expired ones first, then others, which are *evicted*. A batch that an
evicted producer repeats must not be stored twice. Only an upper bound of the evicted ids is
remembered. The first batch of a producer below it is refused in each partition, and so are all its
batches up to that epoch. The batches of its next epoch are stored. Java and librdkafka begin a new
epoch at once on UNKNOWN_PRODUCER_ID; librdkafka raises a fatal error instead if a batch in flight
may have been stored. So eviction costs an honest producer one round trip, and never duplicates a
record.

Batches written between a snapshot and its restore are lost, so none of them can be stored twice.
If the next batch were refused, librdkafka would raise a fatal error.

Kafka stores any sequence of a producer that it does not know; if the first batch then fails, the
second overtakes it. Quafka does so only for producers that it knows it has dropped, and for topics
that have been created again. A failed batch must be repeated before its successors. These are
refused with the same retriable error for some seconds: on OUT_OF_ORDER_SEQUENCE_NUMBER librdkafka
begins a new epoch for all partitions. If the broker dies before it answers a batch that it has
stored, librdkafka sends that batch again in the new epoch, and it would be stored twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial

from quafka_broker.partitions.errors import InDoubtError, StorageError
from quafka_broker.partitions.outcome import Outcome, Settle
from quafka_broker.partitions.partition import PartitionId, partition_of
from quafka_broker.partitions.producer_state import (
    Batch,
    Failed,
    OrgProducers,
    Producer,
    ProducerKey,
    ProducerPartitionState,
    SequenceError,
)
from quafka_loop import clock
from quafka_proto.errors import ErrorCode
from quafka_proto.log_format import ROW_CONTROL, IndexRow
from quafka_proto.records import BatchHeader

_REMEMBERED = 5  # Kafka's limit for batches in flight
_SEQUENCES = 1 << 31
NO_PRODUCER = -1
_NO_LIMIT = 1 << 63


def _now_ms() -> int:
    return clock.time_ns() // 1_000_000


class Producers:
    """All producers of all partitions, bounded for each org."""

    def __init__(
        self,
        limit: int = 100_000,
        now_ms: Callable[[], int] = _now_ms,
        expiration_ms: int = 86_400_000,
    ) -> None:
        """`limit`: producers per org; one that writes to two partitions counts twice."""
        self._orgs: dict[int, OrgProducers] = {}
        self._ids: dict[PartitionId, set[int]] = {}
        self._limit = limit
        self._limits: dict[int, int] = {}
        """Limits of orgs that have their own."""
        self._now_ms = now_ms
        self._expiration_ms = expiration_ms
        self._evicted_below = 0  # for orgs without an entry
        self.evictions_unknown = False
        """Whether the checkpoint with the bound was lost: any producer may have been evicted."""
        self.forgotten_below = 0
        """Any producer with an id below may have been known before."""
        self.restored_below = 0
        """Any producer with an id below may have written batches that a restore lacks."""
        self.may_lack: Callable[[PartitionId, int], bool] = lambda _partition, _offset: False
        """Whether the records after an offset may have been lost with their disk."""
        self.ours_below = _NO_LIMIT
        """Any producer with an id from here on may also have been known: another broker assigned
        the id at an unknown time."""

    def __len__(self) -> int:
        """The number of remembered producers; one in two partitions counts twice."""
        return sum(len(org.known) for org in self._orgs.values())

    def _org(self, partition: PartitionId) -> OrgProducers:
        org = self._orgs.get(partition.org_id)
        if org is None:
            org = self._orgs[partition.org_id] = OrgProducers(evicted_below=self._evicted_below)
        return org

    def _find(self, key: ProducerKey) -> Producer | None:
        return self._org(key[0]).known.get(key)

    def limit_org(self, org: int, limit: int) -> None:
        """Remember at most this many producers of an org, and at least one."""
        if limit == self._limit:
            self._limits.pop(org, None)
        else:
            self._limits[org] = max(1, limit)

    # --- checks -----------------------------------------------------------------------------

    def duplicate_of(self, partition: PartitionId, header: BatchHeader) -> Batch | None:
        """The remembered batch that this one repeats; None for the next batch.

        Raises:
            SequenceError: the batch must not be stored; see the table above.
        """
        key = (partition, header.producer_id)
        producer = self._find(key)
        if producer is None:
            self._check_not_evicted(partition, header)
            self._check_first(partition, header)
            return None
        if header.producer_epoch < producer.epoch:
            raise SequenceError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"epoch {header.producer_epoch} has been replaced by {producer.epoch}",
            )
        if header.producer_epoch > producer.epoch:
            if header.base_sequence:
                raise self._too_early(
                    key, header, f"a new epoch begins with sequence {header.base_sequence}"
                )
            return None
        return self._next_or_repeated(partition, producer, header)

    def _check_not_evicted(self, partition: PartitionId, header: BatchHeader) -> None:
        org, key = self._org(partition), (partition, header.producer_id)
        upto = org.refused.get(key)
        if upto is None:
            if key in org.lapsed or header.producer_id >= org.evicted_below:
                return
        elif header.producer_epoch > upto:
            if not header.base_sequence:
                return
            raise SequenceError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"a new epoch begins with sequence {header.base_sequence}",
            )
        org.refused[key] = max(upto or 0, header.producer_epoch)
        if len(org.refused) > self._limit:
            del org.refused[next(iter(org.refused))]
        raise SequenceError(
            ErrorCode.UNKNOWN_PRODUCER_ID,
            "the producer may have been dropped, because max.producers.per.org was reached",
        )

    def _check_first(self, partition: PartitionId, header: BatchHeader) -> None:
        sequence = header.base_sequence
        if not sequence:
            return
        key = partition, header.producer_id
        lapsed = self._org(partition).lapsed
        if key in lapsed:
            expected = lapsed[key]
            if expected in (None, sequence):
                return
            raise self._too_early(
                key, header, f"sequence {sequence} came where {expected}, which failed, is next"
            )
        if partition.generation:
            return  # the producer may have begun with a deleted topic of this name
        if header.producer_id < self.restored_below:
            return
        if not self.forgotten_below <= header.producer_id < self.ours_below:
            raise SequenceError(
                ErrorCode.UNKNOWN_PRODUCER_ID,
                f"the batches before sequence {sequence} are not known any more",
            )
        raise SequenceError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"a producer's first batch has sequence {sequence}",
        )

    def _next_or_repeated(
        self, partition: PartitionId, producer: Producer, header: BatchHeader
    ) -> Batch | None:
        last = _last_sequence(header.base_sequence, header.record_count)
        for batch in producer.batches:
            if (batch.first, batch.last) == (header.base_sequence, last):
                return batch
        newest = producer.batches[-1] if producer.batches else None
        expected = (newest.last + 1) % _SEQUENCES if newest is not None else 0
        ahead = (header.base_sequence - expected) % _SEQUENCES
        if 0 < ahead < _SEQUENCES // 2 and newest is not None and newest.offset is not None:
            ahead *= not self.may_lack(partition, newest.offset)
        if ahead:
            message = f"sequence {header.base_sequence} came where {expected} is next"
            raise self._too_early((partition, header.producer_id), header, message)
        return None

    def _too_early(self, key: ProducerKey, header: BatchHeader, message: str) -> SequenceError:
        """The error of a batch that does not come after its predecessor."""
        failed = self._org(key[0]).failed.get(key)
        if (
            failed is not None
            and failed.epoch == header.producer_epoch
            and 0 < (header.base_sequence - failed.sequence) % _SEQUENCES < _SEQUENCES // 2
            and failed.is_awaited(self._now_ms())
        ):
            return SequenceError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"sequence {failed.sequence} could not be stored: it must be sent again first",
            )
        return SequenceError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message)

    # --- batches ----------------------------------------------------------------------------

    def begin_append(self, partition: PartitionId, header: BatchHeader) -> Settle:
        """Remember a batch before its append; returns a function to call with the outcome."""
        last = _last_sequence(header.base_sequence, header.record_count)
        batch = Batch(header.base_sequence, last, header.max_timestamp)
        self._remember(partition, header.producer_id, header.producer_epoch, batch)
        return partial(self._settle, (partition, header.producer_id), batch)

    def restore_row(self, row: IndexRow) -> None:
        """Remember a batch by its index row."""
        if row.producer_id == NO_PRODUCER:
            return
        partition = partition_of(row)
        if row.flags & ROW_CONTROL:
            self.fence([partition], row.producer_id, row.producer_epoch)
            return
        last = _last_sequence(row.base_sequence, row.record_count)
        batch = Batch(row.base_sequence, last, row.max_timestamp, row.base_offset)
        self._remember(partition, row.producer_id, row.producer_epoch, batch)

    def fence(self, partitions: Iterable[PartitionId], producer_id: int, epoch: int) -> None:
        """Refuse batches of earlier epochs: markers with this epoch have ended a transaction.

        A marker has no sequence: the batches of its epoch continue as before.
        """
        for partition in partitions:
            known = self._find((partition, producer_id))
            if known is not None and known.epoch < epoch:
                # A transaction ends only after its batches: none of them is pending.
                known.epoch, known.batches, known.before = epoch, [], None

    def _settle(self, key: ProducerKey, batch: Batch, outcome: Outcome) -> None:
        """Apply the outcome of an append."""
        batch.settle(outcome)
        if isinstance(outcome, InDoubtError):
            return  # the batch may be in the log, so no other batch may take its place
        owner = self._find(key)
        while owner is not None and batch not in owner.batches:
            owner = owner.before
        if not isinstance(outcome, StorageError):
            if owner is not None:
                owner.before = None
            return
        # The batch is not in the log, nor are its successors, which the log refuses with it.
        if owner is None:
            return
        while owner.batches and owner.batches.pop() is not batch:
            pass
        org = self._org(key[0])
        org.failed[key] = Failed(owner.epoch, batch.first, self._now_ms())
        if len(org.failed) > self._limit:
            del org.failed[next(iter(org.failed))]
        known: Producer | None = org.known[key]
        while known is not None and not known.batches:
            known = known.before
        if known is None:
            self._drop(key)
            self._lapse(key, batch.first)
        else:
            org.known[key] = known

    def _remember(self, partition: PartitionId, producer_id: int, epoch: int, batch: Batch) -> None:
        key = (partition, producer_id)
        now = self._now_ms()
        producer = self._org(partition).known.pop(key, None)
        if producer is None or producer.epoch != epoch:
            producer = Producer(epoch, now, before=producer if batch.offset is None else None)
        producer.used_ms = now
        producer.batches.append(batch)
        # Pending batches may still be refused, or be missing from a checkpoint: they evict no
        # producers.
        stored = sum(known.offset is not None for known in producer.batches)
        del producer.batches[: max(0, stored - _REMEMBERED)]
        self._put(key, producer)

    def _put(self, key: ProducerKey, producer: Producer) -> None:
        org = self._org(key[0])
        org.lapsed.pop(key, None)
        org.refused.pop(key, None)
        if org.failed:
            org.failed.pop(key, None)
        org.known.pop(key, None)
        org.known[key] = producer
        self._ids.setdefault(key[0], set()).add(key[1])
        limit = self._limit
        if self._limits:
            limit = self._limits.get(key[0].org_id, limit)
        while len(org.known) > limit:
            self._make_room(org)

    # --- dropping ---------------------------------------------------------------------------

    def expire(self, used_before_ms: int) -> int:
        """Drop producers unused since then; returns their number.

        The setting is Kafka's `producer.id.expiration.ms`.
        """
        count = 0
        for org in self._orgs.values():
            while org.known:
                key, oldest = next(iter(org.known.items()))
                pending = oldest.batches and oldest.batches[-1].offset is None
                if oldest.used_ms >= used_before_ms or pending:
                    break
                self._drop(key)
                self._lapse(key, None)
                count += 1
        return count

    def drop_partitions(self, partitions: Iterable[PartitionId]) -> None:
        """Drop the producers of deleted partitions."""
        for partition in partitions:
            for producer_id in self._ids.pop(partition, ()):
                del self._org(partition).known[partition, producer_id]

    def keep_partitions(self, live: Collection[PartitionId]) -> None:
        """Drop the producers of all other partitions. Called once, when all are loaded."""
        self.drop_partitions([partition for partition in self._ids if partition not in live])
        for org in self._orgs.values():
            org.known = dict(sorted(org.known.items(), key=lambda item: item[1].used_ms))

    def begin_ids(self, ids: range) -> None:
        """Note that this broker assigns these ids from now on; none is in use yet."""
        # Producers from before this start may have lost batches to retention.
        self.forgotten_below, self.ours_below = ids.start, ids.stop
        if self.evictions_unknown:
            self._evicted_below = ids.start
            for org in self._orgs.values():
                org.evicted_below = max(org.evicted_below, ids.start)

    def _make_room(self, org: OrgProducers) -> None:
        """Drop the producer that has been silent for longest."""
        key, oldest = next(iter(org.known.items()))
        self._drop(key)
        if oldest.used_ms < self._now_ms() - self._expiration_ms:
            self._lapse(key, None)
        else:
            org.evicted_below = max(org.evicted_below, key[1] + 1)

    def _lapse(self, key: ProducerKey, expected: int | None) -> None:
        lapsed = self._org(key[0]).lapsed
        lapsed[key] = expected
        if len(lapsed) > self._limit:
            key = next(iter(lapsed))
            if key[1] < self.ours_below:
                self.forgotten_below = max(self.forgotten_below, key[1] + 1)
            del lapsed[key]

    def _drop(self, key: ProducerKey) -> None:
        partition, producer_id = key
        del self._org(partition).known[key]
        ids = self._ids[partition]
        ids.discard(producer_id)
        if not ids:
            del self._ids[partition]

    # --- checkpoint -------------------------------------------------------------------------

    def dump(self, partition: PartitionId) -> list[ProducerPartitionState]:
        """The state of a partition's producers for a checkpoint; stored batches only."""
        states: list[ProducerPartitionState] = []
        for producer_id in self._ids.get(partition, ()):
            producer = self._find((partition, producer_id))
            while producer is not None:
                stored = tuple(
                    (batch.first, batch.last, batch.timestamp, batch.offset)
                    for batch in producer.batches
                    if batch.offset is not None
                )
                if stored or (not producer.batches and producer.before is None):
                    state = ProducerPartitionState(
                        producer_id, producer.epoch, producer.used_ms, stored
                    )
                    states.append(state)
                    break
                producer = producer.before
        return states

    def load(self, partition: PartitionId, states: Iterable[ProducerPartitionState]) -> None:
        """Load the result of `dump`."""
        for producer_id, epoch, used_ms, batches in states:
            remembered = [Batch(*batch) for batch in batches]
            self._put((partition, producer_id), Producer(epoch, used_ms, remembered))

    def dump_evicted(self) -> list[tuple[int, int]]:
        """Orgs with evicted producers, each with the bound of their ids; org 0 stands for orgs
        without an entry."""
        below = {0: self._evicted_below}
        below.update((number, org.evicted_below) for number, org in self._orgs.items())
        return [(number, id_) for number, id_ in below.items() if id_]

    def load_evicted(self, evicted: Iterable[tuple[int, int]]) -> None:
        """Load the result of `dump_evicted`."""
        for number, below in evicted:
            if number == 0:
                self._evicted_below = max(self._evicted_below, below)
                continue
            org = self._orgs.setdefault(number, OrgProducers())
            org.evicted_below = max(org.evicted_below, below)

    def load_unknown(
        self, partition: PartitionId, states: Iterable[ProducerPartitionState]
    ) -> None:
        """Load the producers of a `dump` that the log's index lacks."""
        known = self._ids.get(partition, set())
        self.load(partition, [state for state in states if state.producer_id not in known])


def _last_sequence(first: int, count: int) -> int:
    """The last sequence of a batch; sequences wrap from 2^31-1 to 0."""
    return (first + count - 1) % _SEQUENCES
