"""`quafka consume`: prints records' values, by a template, or as one JSON object per line.

Topics, partitions and start offsets are checked with the cluster before librdkafka starts, so that
a wrong one gets a clear error.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from quafka.commands.kafka_client import Troubles, config
from quafka.commands.options import UsageError, bootstrap
from quafka.commands.records import ConsoleRecord, as_line, template
from quafka.commands.run import EXIT_DONE, cluster_of, complain, guarded, interruptible, security
from quafka_client import offsets
from quafka_client.errors import ClientError
from quafka_client.positions import RequestedPosition
from quafka_loop import threads

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, TopicPartition

_AT_ONCE = 500
_WAIT_SECONDS = 0.2  # Ctrl-C does not interrupt a call of librdkafka
_LEAVE_SECONDS = 3.0
_VALUES = r"%s\n"

Place = tuple[str, int]


def run(options: argparse.Namespace) -> int:
    """Read and print records; return the exit code."""
    return guarded(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    show = _show(options)
    begin = asyncio.run(_begin(options))
    from confluent_kafka import Consumer, TopicPartition

    troubles = Troubles()
    consumer = Consumer(_config(options, troubles))
    reading = _Reading(consumer, options, show, troubles)
    try:
        if options.group is None:
            consumer.assign([TopicPartition(*place, offset) for place, offset in begin.items()])
            reading.assigned = True
        else:
            consumer.subscribe(options.topic, on_assign=reading.on_assign)
        reading.run()
    finally:
        _leave(consumer)
    return EXIT_DONE


def _leave(consumer: Consumer) -> None:
    """Commit and leave the group, without librdkafka's long wait for brokers that are gone."""
    leaving = threads.Thread(target=consumer.close, daemon=True)
    leaving.start()
    leaving.join(_LEAVE_SECONDS)
    if leaving.is_alive():
        complain("the last offsets may not have been committed: the group's broker does not answer")


def _show(options: argparse.Namespace) -> Callable[[ConsoleRecord], bytes]:
    if options.format == "json":
        return as_line
    try:
        return template(_VALUES if options.template is None else options.template)
    except ValueError as e:
        raise UsageError(f"--template: {e}") from e


def _config(options: argparse.Namespace, troubles: Troubles) -> dict[str, Any]:
    position: RequestedPosition | None = options.offset
    at_end = position is not None and position.kind == "end"
    return {
        **config(bootstrap(options), security(options), troubles),
        # Without a group nothing is committed, but librdkafka requires a name.
        "group.id": options.group or "quafka-cli",
        "enable.auto.commit": options.group is not None,
        "enable.auto.offset.store": False,  # only printed records are committed
        "auto.offset.reset": "latest" if at_end else "earliest",
        "enable.partition.eof": options.exit,
        "fetch.wait.max.ms": 100,
    }


async def _begin(options: argparse.Namespace) -> dict[Place, int]:
    """The start offset of each partition. Raises ClientError and UsageError."""
    position: RequestedPosition = options.offset or RequestedPosition("start")
    if options.group is not None:
        if position.kind not in ("start", "end"):
            raise UsageError(
                "with --group, --offset is start or end, for a group without offsets; "
                "`quafka groups reset-offsets` moves the offsets of an existing group"
            )
        if options.partitions is not None:
            raise UsageError("--partitions cannot be combined with --group, which assigns them")
    found: dict[Place, int] = {}
    async with cluster_of(options) as cluster:
        for name in dict.fromkeys(options.topic):
            topic = await cluster.topic(name)
            starts = await offsets.list_offsets(cluster, topic, offsets.START)
            ends = await offsets.list_offsets(cluster, topic, offsets.END)
            if position.kind == "last":
                places = {n: end - position.value for n, end in ends.items()}
            else:
                places = await offsets.resolve(cluster, topic, position)
            for number in _chosen(name, options.partitions, sorted(places)):
                found[name, number] = min(max(places[number], starts[number]), ends[number])
    return found


def _chosen(topic: str, wanted: Sequence[int] | None, every: Sequence[int]) -> Sequence[int]:
    unknown = sorted(set(wanted or ()) - set(every))
    if unknown:
        raise UsageError(f"topic {topic!r} has no partition {unknown[0]}")
    return every if wanted is None else wanted


class _Reading:
    """Prints records until the limit or the end is reached."""

    def __init__(
        self,
        consumer: Consumer,
        options: argparse.Namespace,
        show: Callable[[ConsoleRecord], bytes],
        troubles: Troubles,
    ) -> None:
        self._consumer = consumer
        self._left: int | None = options.num
        self._to_the_end: bool = options.exit
        self._grouped = options.group is not None
        self._show = show
        self._troubles = troubles
        self._ended: set[Place] = set()
        self.assigned = False

    def on_assign(self, _consumer: Consumer, _partitions: Sequence[TopicPartition]) -> None:
        """The group has assigned partitions to this member, possibly none."""
        self.assigned = True

    def run(self) -> None:
        """Read and print until done. Raises ClientError, and KeyboardInterrupt after Ctrl-C."""
        with interruptible() as check:
            while not self._enough():
                wanted = _AT_ONCE if self._left is None else min(_AT_ONCE, self._left)
                found = self._consumer.consume(wanted, _WAIT_SECONDS)
                check()
                if found:
                    self._troubles.over()
                    self._all(found)

    def _enough(self) -> bool:
        if self._left == 0:
            return True
        if not self._to_the_end or not self.assigned:
            return False
        mine = {(each.topic, each.partition) for each in self._consumer.assignment()}
        return mine <= self._ended

    def _all(self, found: Sequence[Message]) -> None:
        last: dict[Place, Message] = {}
        out = sys.stdout.buffer
        for message in found:
            if self._is_end(message):
                continue
            place = (message.topic() or "", message.partition() or 0)
            self._ended.discard(place)
            last[place] = message
            out.write(self._show(_record(message)))
            if self._left is not None:
                self._left -= 1
        out.flush()
        if self._grouped:
            for message in last.values():
                self._consumer.store_offsets(message=message)

    def _is_end(self, message: Message) -> bool:
        from confluent_kafka import KafkaError

        error = message.error()
        if error is None:
            return False
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
            self._ended.add((message.topic() or "", message.partition() or 0))
            return True
        if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED and not self._grouped:
            return True  # librdkafka needs a group name, and looks for its coordinator
        what = f"topic {message.topic()!r}" if message.topic() else "the group's topics"
        raise ClientError(f"cannot read {what}: {error.str()}")


def _record(message: Message) -> ConsoleRecord:
    headers: Any = message.headers() or []
    kind, timestamp = message.timestamp()
    key: Any = message.key()
    value: Any = message.value()
    return ConsoleRecord(
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        timestamp if kind else -1,
        key,
        value,
        list(headers),
    )
