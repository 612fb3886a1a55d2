"""`quafka consume`: prints or counts records.

Topics, partitions and start offsets are checked with the cluster before librdkafka starts, so that
a wrong one gets a clear error.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

from quafka.commands.forms import form
from quafka.commands.kafka_client import Troubles, config
from quafka.commands.options import UsageError, bootstrap, registry_url
from quafka.commands.records import ConsoleRecord, as_line, template
from quafka.commands.run import EXIT_DONE, cluster_of, complain, guarded, interruptible, security
from quafka.commands.views import Counting, Printing, RecordView, chosen
from quafka.progress import RECORDS, ProgressLine
from quafka_client import offsets
from quafka_client.cluster import ClientCluster
from quafka_client.errors import ClientError
from quafka_client.positions import RequestedPosition
from quafka_loop import threads
from quafka_proto.schema.metadata import MetadataResponseTopic

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
    _check(options)
    with ExitStack() as stack:
        view = _view(options, stack)
        places = asyncio.run(_places(options))
        _read(options, view, places)
    return EXIT_DONE


def _read(
    options: argparse.Namespace, view: RecordView, places: dict[Place, PartitionSpan]
) -> None:
    from confluent_kafka import Consumer, TopicPartition

    troubles = Troubles()
    consumer = Consumer(_config(options, troubles))
    reading = _Reading(consumer, options, view, troubles)
    try:
        if options.group is None:
            reading.assign(places)
            consumer.assign(
                [
                    TopicPartition(*each, its.first)
                    for each, its in places.items()
                    if its.end is None or its.first < its.end
                ]
            )
        else:
            consumer.subscribe(options.topic, on_assign=reading.on_assign)
        reading.run()
    finally:
        _leave(consumer)
    view.end()


def _check(options: argparse.Namespace) -> None:
    """Raises UsageError: flags that cannot be combined."""
    if options.follow and (options.exit or options.until is not None):
        raise UsageError("--follow reads on at the end, and cannot be combined with -e or --until")
    for flag in ("partitions", "until", "count"):
        if options.group is not None and getattr(options, flag):
            raise UsageError(f"--{flag} cannot be combined with --group, which assigns partitions")


def _leave(consumer: Consumer) -> None:
    """Commit and leave the group, without librdkafka's long wait for brokers that are gone."""
    leaving = threads.Thread(target=consumer.close, daemon=True)
    leaving.start()
    leaving.join(_LEAVE_SECONDS)
    if leaving.is_alive():
        complain("the last offsets may not have been committed: the group's broker does not answer")


def _view(options: argparse.Namespace, stack: ExitStack) -> RecordView:
    """What is printed of which records. Raises UsageError and ClientError: a filter is wrong."""
    key, value = form(options.key_as), form(options.value_as)
    json_of: Callable[[bytes], Any] = json.loads
    url = registry_url(options)
    if url is not None:
        from quafka.commands.registry import DecodedForm, schemas_at

        schemas = stack.enter_context(schemas_at(url, options))
        decoded = DecodedForm(schemas, value)
        key, value, json_of = DecodedForm(schemas, key), decoded, decoded.json_of
    wanted = chosen(options, key, value, json_of)
    if options.count:
        return Counting(wanted, as_json=options.format == "json", follows=options.follow)
    if options.format == "json":
        return Printing(wanted, lambda record: as_line(record, key, value))
    try:
        text = _VALUES if options.template is None else options.template
        return Printing(wanted, template(text, key, value))
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
        "enable.partition.eof": options.exit or _stops(options),
        "isolation.level": options.isolation_level,
        "fetch.wait.max.ms": 100,
    }


def _stops(options: argparse.Namespace) -> bool:
    """Whether reading stops where the partitions end when it begins, or before."""
    return options.until is not None or (options.count and not options.follow)


class PartitionSpan(NamedTuple):
    """The offsets of a partition that are read.

    `end`: where reading stops; None: it does not. `now`: where the partition ended at the start.
    """

    first: int
    end: int | None
    now: int

    @property
    def size(self) -> int:
        """How many offsets there are to read, as far as that is known."""
        return max(0, (self.now if self.end is None else self.end) - self.first)


async def _places(options: argparse.Namespace) -> dict[Place, PartitionSpan]:
    """What is read of each partition. Raises ClientError and UsageError."""
    position: RequestedPosition = options.offset or RequestedPosition("start")
    if options.group is not None and position.kind not in ("start", "end"):
        raise UsageError(
            "with --group, --offset is start or end, for a group without offsets; "
            "`quafka groups reset-offsets` moves the offsets of an existing group"
        )
    found: dict[Place, PartitionSpan] = {}
    async with cluster_of(options) as cluster:
        for name in dict.fromkeys(options.topic):
            topic = await cluster.topic(name)
            starts = await offsets.list_offsets(cluster, topic, offsets.START)
            ends = await offsets.list_offsets(cluster, topic, offsets.END)
            if position.kind == "last":
                places = {n: end - position.value for n, end in ends.items()}
            else:
                places = await offsets.resolve(cluster, topic, position)
            stops = await _ends(cluster, topic, options) if _stops(options) else {}
            for number in _chosen(name, options.partitions, sorted(places)):
                first = min(max(places[number], starts[number]), ends[number])
                found[name, number] = PartitionSpan(first, stops.get(number), ends[number])
    return found


async def _ends(
    cluster: ClientCluster, topic: MetadataResponseTopic, options: argparse.Namespace
) -> dict[int, int]:
    """Where each partition is read to: its end for consumers of this isolation, or before."""
    committed = options.isolation_level == "read_committed"
    ends = await offsets.list_offsets(cluster, topic, offsets.END, committed=committed)
    if options.until is None or options.until.kind == "end":
        return ends
    wanted = await offsets.resolve(cluster, topic, options.until)
    return {number: min(wanted[number], end) for number, end in ends.items()}


def _chosen(topic: str, wanted: Sequence[int] | None, every: Sequence[int]) -> Sequence[int]:
    unknown = sorted(set(wanted or ()) - set(every))
    if unknown:
        raise UsageError(f"topic {topic!r} has no partition {unknown[0]}")
    return every if wanted is None else wanted


class _Reading:
    """Reads records until the limit or the end is reached."""

    def __init__(
        self, consumer: Consumer, options: argparse.Namespace, view: RecordView, troubles: Troubles
    ) -> None:
        self._consumer = consumer
        self._left: int | None = options.num
        self._to_the_end: bool = options.exit or _stops(options)
        self._grouped = options.group is not None
        self._view = view
        self._troubles = troubles
        self._stops: dict[Place, int] = {}
        self._ended: set[Place] = set()
        self._assigned = False
        self._of = self._done = 0
        # Records on the same terminal would break the line.
        alone = options.count or not sys.stdout.isatty()
        self._progress = ProgressLine("read", RECORDS) if alone else None

    def assign(self, places: Mapping[Place, PartitionSpan]) -> None:
        """Read these ranges."""
        self._assigned = True
        self._of = sum(its.size for its in places.values())
        self._stops = {each: its.end for each, its in places.items() if its.end is not None}

    def on_assign(self, _consumer: Consumer, _partitions: Sequence[TopicPartition]) -> None:
        """The group has assigned partitions to this member, possibly none."""
        self._assigned = True

    def run(self) -> None:
        """Read until done. Raises ClientError, and KeyboardInterrupt after Ctrl-C."""
        try:
            with interruptible() as check:
                while not self._enough():
                    found = self._consumer.consume(self._at_once(), _WAIT_SECONDS)
                    check()
                    self._take(found)
        finally:
            if self._progress is not None:
                self._progress.end()

    def _take(self, found: Sequence[Message]) -> None:
        if found:
            self._troubles.over()
            self._all(found)
        self._view.flush()
        if self._progress is not None and self._to_the_end and self._of:
            self._done += len(found)
            self._progress.show(min(self._done, self._of), self._of)

    def _at_once(self) -> int:
        """A filter may leave out most of what is fetched."""
        if self._left is None or self._view.filters:
            return _AT_ONCE
        return min(_AT_ONCE, self._left)

    def _enough(self) -> bool:
        if self._left == 0:
            return True
        if not self._to_the_end or not self._assigned:
            return False
        mine = {(each.topic, each.partition) for each in self._consumer.assignment()}
        return mine <= self._ended

    def _all(self, found: Sequence[Message]) -> None:
        last: dict[Place, Message] = {}
        for message in found:
            if self._left == 0:
                break
            place = (message.topic() or "", message.partition() or 0)
            if self._is_end(message) or self._is_after_the_end(place, message):
                continue
            last[place] = message
            if self._view.take(record_of(message)) and self._left is not None:
                self._left -= 1
        if self._grouped:
            self._view.flush()  # only printed records are committed
            for message in last.values():
                self._consumer.store_offsets(message=message)

    def _is_after_the_end(self, place: Place, message: Message) -> bool:
        offset, stop = message.offset() or 0, self._stops.get(place)
        if stop is None:
            self._ended.discard(place)
            return False
        if offset + 1 >= stop and place not in self._ended:
            from confluent_kafka import TopicPartition

            self._ended.add(place)
            self._consumer.pause([TopicPartition(*place)])  # others may have much left to read
        return offset >= stop

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


def record_of(message: Message) -> ConsoleRecord:
    """The record of a message that is no error."""
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
