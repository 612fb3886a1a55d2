"""Transactions of one producer, what they cost, reading behind them, and a restart with many.

A transaction is a Produce of at least 100 records of 100 bytes, evenly over its partitions, and an
EndTxn, as clients send them since KIP-890. Commit latency is from EndTxn to its answer; the rate
also has the repetitions while Apache Kafka still writes the markers of the transaction before. A
commit is visible when a ListOffsets with read_committed shows it in the first and last partition.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from functools import cache, partial

from confluent_kafka import Consumer, Producer, TopicPartition

from quafka_proto.errors import ErrorCode
from quafka_proto.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from quafka_proto.schema.produce import ProduceRequest
from tests.bench.peers import Server
from tests.bench.rows.row import Figures, Row
from tests.support.isolated_reader import IsolatedReader
from tests.support.kafka_calls import create_topic
from tests.support.raw_client import RawClient
from tests.support.transactional import TV1, TV2, RawProducer, Style

_SIZES = (1, 10, 100, 1_000)
_RECORDS, _RECORD = 100, bytes(100)
_WAIT = 0.001
"""Seconds between repetitions of a request; clients wait for 20 ms and more."""
_NOT_YET = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
_OVERHEAD_RECORDS, _A_COMMIT = 200_000, 5_000
_READ_RECORDS, _READ_SIZE, _A_READ_COMMIT = 50_000, 1_000, 100
_ENDED, _OPEN, _WRITERS = 100_000, 1_000, 16
"""Transactions before the restart, and the threads that write them."""


def _topic(partitions: int) -> str:
    return f"transactions-{partitions}"


@cache
def _prepare(partitions: int, server: Server) -> None:
    with RawClient(server.address, 60) as client:
        create_topic(client, _topic(partitions), partitions)
    time.sleep(2)  # Kafka answers before the partitions have a leader


def begun(client: RawClient, transactional_id: str, style: Style) -> RawProducer:
    """A producer with its id."""
    producer = RawProducer(client, transactional_id, style)
    _repeat(producer.find_coordinator)
    _repeat(producer.initialise)
    return producer


def _repeat(attempt: Callable[[], int]) -> None:
    while error := attempt():
        assert error in _NOT_YET, ErrorCode(error).name
        time.sleep(_WAIT)


def _sent(producer: RawProducer, request: ProduceRequest) -> int:
    """Send it; an error of its answer."""
    return max(answer.error for answer in producer.send(request).values())


def transact(producer: RawProducer, topic: str, partitions: int) -> float:
    """One transaction; the seconds of its commit."""
    if producer.style.adds:
        _repeat(partial(producer.add_partitions, topic, range(partitions)))
    each = max(1, _RECORDS // partitions)
    request = producer.produce_request(topic, {n: [_RECORD] * each for n in range(partitions)})
    _repeat(partial(_sent, producer, request))
    before = time.perf_counter()
    _repeat(partial(producer.end, commit=True))
    return time.perf_counter() - before


def _stable(client: RawClient, topic: str, partitions: int) -> list[int]:
    """The last stable offsets of the first and the last partition."""
    asked = [
        ListOffsetsPartition(partition_index=number, timestamp=-1)
        for number in sorted({0, partitions - 1})
    ]
    topics = [ListOffsetsTopic(name=topic, partitions=asked)]
    request = ListOffsetsRequest(isolation_level=1, topics=topics)
    answer = client.call(request, ListOffsetsResponse, 7)
    return [part.offset for part in answer.topics[0].partitions]


def _visible(client: RawClient, producer: RawProducer, partitions: int, seconds: float) -> float:
    """The median of the seconds from EndTxn until its transaction can be read."""
    topic, taken = _topic(partitions), list[float]()
    before = _stable(client, topic, partitions)
    until = time.perf_counter() + seconds
    while not taken or time.perf_counter() < until:
        committed = transact(producer, topic, partitions)
        answered = time.perf_counter()
        grown = max(1, _RECORDS // partitions) + 1  # and the marker
        after = [offset + grown for offset in before]
        while (before := _stable(client, topic, partitions)) != after:
            assert time.perf_counter() < answered + 30, f"{before} is not {after}"
        taken.append(committed + time.perf_counter() - answered)
    return statistics.median(taken)


def _commits(style: Style, partitions: int, server: Server, seconds: float, turn: int) -> Figures:
    with RawClient(server.address, 60) as client:
        producer = begun(client, f"{style.name}-{partitions}-{turn}", style)
        topic = _topic(partitions)
        warm = time.perf_counter() + 1
        while time.perf_counter() < warm:
            transact(producer, topic, partitions)
        taken: list[float] = []
        cpu, began = server.cpu_seconds(), time.perf_counter()
        while (passed := time.perf_counter() - began) < seconds:
            taken.append(transact(producer, topic, partitions))
        cpu = server.cpu_seconds() - cpu
        time.sleep(0.2)  # until Kafka's last markers are written
        visible = _visible(client, producer, partitions, seconds / 3)
    taken.sort()
    count = len(taken)
    return (
        count / passed,
        statistics.median(taken) * 1e3,
        taken[count * 99 // 100] * 1e3,
        visible * 1e3,
        cpu / count * 1e3,
    )


# --- overhead against the idempotent producer --------------------------------------------------


def _overhead(server: Server, _seconds: float, turn: int) -> Figures:
    plain, its_cpu = _produced(server, {"enable.idempotence": True}, 0)
    transactional, cpu = _produced(server, {"transactional.id": f"overhead-{turn}"}, _A_COMMIT)
    return plain, transactional, transactional / plain, cpu / its_cpu


def _produced(
    server: Server, settings: dict[str, str | int | float | bool | None], every: int
) -> tuple[float, float]:
    """Records a second, and CPU seconds; a commit after so many records."""
    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
            **settings,
        }
    )
    producer.list_topics(_topic(10), 10)
    if every:
        producer.init_transactions(60)
    cpu, began = server.cpu_seconds(), time.perf_counter()
    for number in range(_OVERHEAD_RECORDS):
        if every and not number % every:
            if number:
                producer.commit_transaction(60)
            producer.begin_transaction()
        producer.produce(_topic(10), _RECORD, partition=number % 10)
        producer.poll(0)
    if every:
        producer.commit_transaction(60)
    assert producer.flush(60) == 0
    took = time.perf_counter() - began
    return _OVERHEAD_RECORDS / took, server.cpu_seconds() - cpu


# --- read_committed ----------------------------------------------------------------------------


@cache
def _fill(aborted: int, server: Server) -> None:
    """Transactions of 100 records of 1 KB by two producers in turns; a part of them aborted."""
    topic = f"aborted-{aborted}"
    with RawClient(server.address, 60) as client:
        create_topic(client, topic)
        time.sleep(2)
        producers = [begun(client, f"{topic}-{n}", TV2) for n in range(2)]
        values = [bytes(_READ_SIZE)] * _A_READ_COMMIT
        for number in range(_READ_RECORDS // _A_READ_COMMIT):
            producer = producers[number % 2]
            request = producer.produce_request(topic, {0: values})
            _repeat(partial(_sent, producer, request))
            abort = number * aborted // 100 != (number + 1) * aborted // 100
            _repeat(partial(producer.end, commit=not abort))


def _read(aborted: int, server: Server, _seconds: float, _turn: int) -> Figures:
    """MB a second, of all bytes that are read, and the server's CPU seconds for a GB."""
    topic = f"aborted-{aborted}"
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.queue.backoff.ms": 10,
            "enable.partition.eof": True,
        }
    )
    consumer.list_topics(topic, timeout=10)
    cpu, began = server.cpu_seconds(), time.perf_counter()
    consumer.assign([TopicPartition(topic, 0, 0)])
    while True:
        message = consumer.poll(5)
        assert message is not None, f"{topic}: nothing more"
        if message.error() is not None:
            break  # the end
    took, cpu = time.perf_counter() - began, server.cpu_seconds() - cpu
    consumer.close()
    megabytes = _READ_RECORDS * _READ_SIZE / 1e6
    return megabytes / took, cpu / megabytes * 1e3


# --- restart -----------------------------------------------------------------------------------


@cache
def _many(server: Server) -> None:
    """Transactions of one record each, ended, and some that stay open."""
    _prepare(100, server)

    def write(number: int) -> None:
        with RawClient(server.address, 60) as client:
            producer = begun(client, f"ended-{number}", TV2)
            for n in range(_ENDED // _WRITERS):
                request = producer.produce_request(_topic(100), {n % 100: [b"r"]})
                _repeat(partial(_sent, producer, request))
                _repeat(partial(producer.end, commit=bool(n % 10)))
            for n in range(_OPEN // _WRITERS):
                producer = begun(client, f"open-{number}-{n}", TV2)
                _repeat(partial(producer.produce, _topic(100), {n % 100: [b"r"]}))

    writers = [threading.Thread(target=write, args=(number,)) for number in range(_WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()


def _restart(server: Server, _seconds: float, turn: int) -> Figures:
    """Seconds from the kill to the answers of an InitProducerId and of a read_committed fetch."""
    assert server.restart is not None
    began = time.perf_counter()
    server.restart()
    while True:
        try:
            with RawClient(server.address, 60) as client:
                begun(client, f"after-{turn}", TV2)
                reader = IsolatedReader(_topic(100), 100, committed=True)
                while len(reader.stable) < 100:
                    reader.poll(client)
                return (time.perf_counter() - began,)
        except (OSError, AssertionError):
            time.sleep(0.02)


_UNITS = ("transactions/s", "commit p50 ms", "p99 ms", "visible p50 ms", "CPU ms a transaction")

ROWS = (
    *(
        Row(
            "transactions", f"{max(_RECORDS, size):,} records over {size:,} partitions", _UNITS,
            partial(_commits, TV2, size),
            partial(_prepare, size),
        )
        for size in _SIZES
    ),
    Row(
        "transactions", "100 records over 10 partitions, by a client before KIP-890", _UNITS,
        partial(_commits, TV1, 10), partial(_prepare, 10),
    ),
    Row(
        "transactions", f"librdkafka, 100 B, a commit each {_A_COMMIT:,} records, and without",
        ("idempotent records/s", "transactional records/s", "of it", "CPU of it"), _overhead,
        partial(_prepare, 10),
    ),
    *(
        Row(
            "transactions", f"read_committed by librdkafka, 1 KB, {aborted}% aborted",
            ("MB/s", "CPU s/GB"), partial(_read, aborted), partial(_fill, aborted),
            fsync_matters=False,
        )
        for aborted in (0, 10, 50)
    ),
    Row(
        "transactions", f"restart with {_ENDED:,} ended and {_OPEN:,} open transactions",
        ("s",), _restart, _many, fsync_matters=False,
    ),
)  # fmt: skip
