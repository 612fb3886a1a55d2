"""Records from the source's consumer to the target's transactional producer, exactly once.

A session ends with any error; the next one continues from what is committed. A second session of
the same job fences the first (KIP-447): at no time do two of them write.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Self

from quafka.commands.kafka_client import Troubles
from quafka.copying.job import CopiedPartition, Job
from quafka_client.errors import ClientError
from quafka_client.group_offsets import Place
from quafka_loop import clock
from quafka_proto.errors import ErrorCode

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, Producer

_AT_ONCE = 1_000
_WAIT_SECONDS = 0.2
_IN_A_TRANSACTION = 100_000
_TRANSACTION_MS = 30_000
_CALL_SECONDS = 35.0
_MAX_RECORD = 100 << 20
_REFUSALS = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP, ErrorCode.POLICY_VIOLATION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)  # fmt: skip


class JobFencedError(ClientError):
    """Another process runs the same job."""


class TopicRefusedError(ClientError):
    """A topic cannot be copied now, others can. `topic`: its name at the source."""

    def __init__(self, message: str, topic: str) -> None:
        super().__init__(message)
        self.topic = topic


class CopySession:
    """Copies partitions from where they are. A context manager: an exit ends what is open."""

    def __init__(self, job: Job, commit_seconds: float) -> None:
        """`commit_seconds`: how long a transaction takes at most, while records arrive.

        Raises ClientError if the target cannot be reached, or refuses the job.
        """
        from confluent_kafka import Consumer, KafkaException, Producer

        self._job = job
        self._seconds = commit_seconds
        troubles = Troubles()
        self._producer: Producer = Producer(
            {
                **job.target.settings(troubles),
                "transactional.id": job.group,
                "transaction.timeout.ms": _TRANSACTION_MS,
                # A coordinator that a "rebootstrap" gives up stays in librdkafka's cache: after a
                # restart of the target send_offsets_to_transaction would wait for it for ever, as
                # it ignores its timeout (librdkafka issues 5511 and 5456). A new session finds
                # brokers that have moved.
                "metadata.recovery.strategy": "none",
                "compression.type": job.compression,
                "linger.ms": 20,
                "message.max.bytes": _MAX_RECORD,
                "queue.buffering.max.kbytes": 256 << 10,
            }
        )
        self._consumer: Consumer = Consumer(
            {
                **job.source.settings(troubles),
                "group.id": job.group,  # nothing is committed at the source
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 100,
                "queued.max.messages.kbytes": 64 << 10,
            }
        )
        self._troubles = troubles
        self._failure: tuple[KafkaError, Place] | None = None
        self._partitions: dict[Place, CopiedPartition] = {}
        self._by_copy: dict[Place, CopiedPartition] = {}
        self._waiting: dict[Place, deque[int]] = {}
        self._changed: dict[Place, CopiedPartition] = {}
        self._began: float | None = None
        self._in_transaction = 0
        self.ended: set[Place] = set()
        """The partitions of the source of which nothing is left to read now."""
        self.records = self.bytes = 0
        """What was committed."""
        self._pending_bytes = 0
        try:
            self._producer.init_transactions(max(job.target.timeout, 1.0))
        except (KafkaException, SystemError) as e:
            raise _failed("the target", e) from e

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Abort what is not committed, without a wait for a target that is gone."""
        from confluent_kafka import KafkaException

        if self._began is not None:
            try:
                self._producer.purge()
                self._producer.abort_transaction(self._job.target.timeout)
            except (KafkaException, SystemError):
                pass  # the next session's init_transactions ends it
        self._consumer.close()

    @property
    def partitions(self) -> Sequence[CopiedPartition]:
        """All partitions of the job."""
        return list(self._partitions.values())

    def lag(self) -> int:
        """The records that are not copied yet, as the last answers of the source show them."""
        from confluent_kafka import TopicPartition

        found = 0
        for each in self._partitions.values():
            if each.source not in self.ended:
                place = TopicPartition(*each.source)
                _, end = self._consumer.get_watermark_offsets(place, cached=True)
                found += max(0, end - each.position, each.end - each.position)
        return found

    def add(self, partitions: Sequence[CopiedPartition]) -> None:
        """Also copy these, each from its position, which is committed. Raises ClientError.

        Without this, after an abort of its first transaction the job would find a copy that is not
        empty, and no state.
        """
        from confluent_kafka import TopicPartition

        new = [each for each in partitions if each.source not in self._partitions]
        for each in new:
            self._partitions[each.source] = self._by_copy[each.target] = each
        if new:
            self._keep(new)
            self._consumer.incremental_assign(
                [TopicPartition(*each.source, each.position) for each in new]
            )

    def step(self) -> None:
        """Copy what has arrived; commit when it is time. Raises ClientError."""
        from confluent_kafka import KafkaException

        try:
            for message in self._consumer.consume(_AT_ONCE, _WAIT_SECONDS):
                self._one(message)
            self._producer.poll(0)
            self._check()
            if self._began is not None and (
                self._in_transaction >= _IN_A_TRANSACTION
                or clock.monotonic() - self._began >= self._seconds
            ):
                self.commit()
        except (KafkaException, SystemError) as e:
            failed = _failed("copying", e)
            if not isinstance(failed, JobFencedError):
                self._check()  # its error names the topic
            raise failed from e

    def commit(self) -> None:
        """End the open transaction, if any. Raises ClientError."""
        from confluent_kafka import KafkaException

        if self._began is None:
            return
        try:
            left = self._producer.flush(_CALL_SECONDS)
            self._check()
            if left:
                raise ClientError("the target does not answer; no record was written twice")
            self._commit_positions(self._changed.values())
        except (KafkaException, SystemError) as e:
            raise _failed("the target", e) from e
        self.records += self._in_transaction
        self.bytes += self._pending_bytes
        self._began, self._in_transaction, self._pending_bytes = None, 0, 0
        self._changed.clear()

    def keep_state(self) -> None:
        """Commit all positions again: the target forgets offsets that are not renewed for days."""
        self._keep(self._partitions.values())

    def _keep(self, partitions: Collection[CopiedPartition]) -> None:
        from confluent_kafka import KafkaException

        self.commit()
        if not partitions:
            return
        try:
            self._producer.begin_transaction()
            self._began = clock.monotonic()
            self._commit_positions(partitions)
        except (KafkaException, SystemError) as e:
            raise _failed("the target", e) from e
        self._began = None

    def _commit_positions(self, partitions: Any) -> None:
        from confluent_kafka import TopicPartition

        positions: list[TopicPartition] = []
        for each in partitions:
            topic, number = each.target
            positions.append(TopicPartition(topic, number, each.position, each.metadata))
        self._producer.send_offsets_to_transaction(
            positions, self._consumer.consumer_group_metadata(), _CALL_SECONDS
        )
        self._producer.commit_transaction(_CALL_SECONDS)

    # --- records --------------------------------------------------------------------------------

    def _one(self, message: Message) -> None:
        place = (message.topic() or "", message.partition() or 0)
        error = message.error()
        if error is not None:
            self._trouble(place, message, error)
            return
        self._troubles.over()
        self.ended.discard(place)
        partition = self._partitions[place]
        if self._began is None:
            self._producer.begin_transaction()
            self._began = clock.monotonic()
        offset = message.offset()
        assert offset is not None
        self._write(partition, message)
        self._waiting.setdefault(partition.target, deque()).append(offset)
        partition.position = offset + 1
        self._changed[place] = partition
        self._in_transaction += 1

    def _write(self, partition: CopiedPartition, message: Message) -> None:
        kind, timestamp = message.timestamp()
        key: Any = message.key()
        value: Any = message.value()
        headers: Any = message.headers()
        self._pending_bytes += len(key or b"") + len(value or b"")
        topic, number = partition.target
        while True:
            try:
                self._producer.produce(
                    topic, value, key, number,
                    timestamp=timestamp if kind else 0, headers=headers, on_delivery=self._written,
                )  # fmt: skip
            except BufferError:
                self._producer.poll(_WAIT_SECONDS)
                self._check()
            else:
                return

    def _written(self, error: KafkaError | None, message: Message) -> None:
        """A record is written: those of a partition come in their order."""
        place = (message.topic() or "", message.partition() or 0)
        if error is not None:
            # librdkafka's own errors (below 0) are of records that another one's failure purged.
            if self._failure is None or self._failure[0].code() < 0 < error.code():
                self._failure = error, place
            return
        offset = message.offset()
        assert offset is not None
        self._by_copy[place].known.add(self._waiting[place].popleft(), offset)

    def _check(self) -> None:
        if self._failure is None:
            return
        if self._failure[0].code() < 0:
            self._producer.poll(_WAIT_SECONDS)  # for the error that is the cause
        error, (topic, number) = self._failure
        where = f"partition {number} of {topic!r}"
        raise _of_topic(
            self._by_copy[topic, number].source[0], error,
            f"the target did not write a record of {where}: {error.str()}",
        )  # fmt: skip

    def _trouble(self, place: Place, message: Message, error: KafkaError) -> None:
        from confluent_kafka import KafkaError

        code = error.code()
        if code == KafkaError._PARTITION_EOF:  # noqa: SLF001
            self.ended.add(place)
        elif code == KafkaError.GROUP_AUTHORIZATION_FAILED:
            pass  # librdkafka looks for the coordinator of a group that it does not use
        elif code == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001
            # A new session looks where the partition begins now.
            raise ClientError(
                f"partition {place[1]} of {place[0]!r} has lost the offset "
                f"{self._partitions[place].position}"
            )
        else:
            what = f"topic {message.topic()!r}" if message.topic() else "the source"
            raise _of_topic(message.topic() or "", error, f"cannot read {what}: {error.str()}")


def _of_topic(topic: str, error: KafkaError, message: str) -> ClientError:
    if topic and error.code() in _REFUSALS:
        return TopicRefusedError(message, topic)
    return ClientError(message)


def _failed(what: str, exception: BaseException) -> ClientError:
    """The error of a call. A fatal one makes callbacks of the same call raise SystemError."""
    from confluent_kafka import KafkaError, KafkaException

    cause: BaseException | None = exception
    while cause is not None and not isinstance(cause, KafkaException):
        cause = cause.__cause__ or cause.__context__
    if cause is None:
        raise exception
    error: KafkaError = cause.args[0]
    if error.code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED):  # noqa: SLF001
        return JobFencedError("another process runs the same job; this one ends")
    return ClientError(f"{what}: {error.str()}")
