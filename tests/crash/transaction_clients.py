"""Transactional producers and isolated consumers that report to a checker; one thread each.

A producer commits `number + 1` of its transactions as the offset of a group of its own, so that the
group's offset and the visible records must agree.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from quafka_proto.errors import ErrorCode
from quafka_proto.schema.groups import FindCoordinatorRequest, FindCoordinatorResponse
from quafka_proto.schema.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tests.crash.kafka_checker import Seen
from tests.crash.kafka_clients import GIVE_UP_SECONDS, Client, ConfluentReader
from tests.crash.transaction_checker import Fate, Transaction, TransactionChecker
from tests.support.confluent import LASTING
from tests.support.isolated_reader import IsolatedReader
from tests.support.raw_client import RawClient
from tests.support.transactional import RawProducer, Style

_RETRIABLE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.KAFKA_STORAGE_ERROR,
}
_ABORTS, _SENDS_OFFSET, _DUELS = 0.25, 0.4, 0.05
_SOCKET_SECONDS = 5.0


def group_of(producer: str) -> str:
    """The group whose offset a producer's transactions commit."""
    return f"group-{producer}"


@dataclass
class Plan:
    """What a transaction does. Its values are known to the checker."""

    transaction: Transaction
    values: dict[int, list[bytes]]
    commit: bool


class Transactor(Client):
    """A producer: transactions of a few values over some partitions, now and then an aborted one.

    Fates change before the request and behind the answer, so that the checker is never late.
    """

    checker: TransactionChecker

    def __init__(self, *args: Any, per_second: int, acked: Callable[[], None], seed: int) -> None:
        super().__init__(*args)
        self.pause = 1 / per_second
        self._acked = acked
        self.rng = random.Random(seed)
        self._number = 0
        self.group = group_of(self.name)

    def plan(self) -> Plan:
        """The next transaction."""
        transaction = self.checker.begin(self.name, self._number)
        values: dict[int, list[bytes]] = {}
        for index in range(self.rng.choice((0, 1, 2, 5, 12, 30))):
            value = b"%s-%d-%d-" % (self.name.encode(), self._number, index)
            value += b"." * self.rng.choice((0, 20, 200))
            values.setdefault(self.rng.randrange(self.partitions), []).append(value)
        # In the order in which they are sent to each partition, which is all that is compared.
        for some in values.values():
            for value in some:
                self.checker.write(transaction, value)
        transaction.sends_offset = not values or self.rng.random() < _SENDS_OFFSET
        self._number += 1
        return Plan(transaction, values, self.rng.random() >= _ABORTS)

    def ended(self, transaction: Transaction, fate: Fate) -> None:
        self.checker.change(transaction, fate)
        self._acked()
        if fate is Fate.COMMITTED:
            self.ready.set()

    def dropped(self, transaction: Transaction, reason: object) -> None:
        """A transaction failed; unless its commit was sent, it cannot become visible."""
        self.checker.give_up(self.name, reason)
        if transaction.fate is not Fate.COMMITTING:
            self.checker.change(transaction, Fate.ABORTING)


class ConfluentTransactor(Transactor):
    """librdkafka, which speaks TV1."""

    def run(self) -> None:
        members = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": self.group, "log_level": 0}
        )
        try:
            self._metadata = members.consumer_group_metadata()
        finally:
            members.close()
        producer: Producer | None = None
        while not self.stopping.wait(self.pause):
            producer = producer or self._open()
            plan = self.plan()
            try:
                self._one(producer, plan)
            except KafkaException as e:
                self.dropped(plan.transaction, e)
                producer = self._recovered(producer, plan.transaction, e)

    def _open(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": self.name,
                "log_level": 0,
                "linger.ms": self.rng.choice((0, 2, 20)),
                "compression.type": self.rng.choice(("none", "lz4")),
                "transaction.timeout.ms": 60_000,
                "socket.timeout.ms": int(_SOCKET_SECONDS * 1e3),
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.max.ms": 200,
                **LASTING,
            }
        )
        _until_done(partial(producer.init_transactions, GIVE_UP_SECONDS))
        return producer

    def _one(self, producer: Producer, plan: Plan) -> None:
        producer.begin_transaction()
        for to, values in plan.values.items():
            for value in values:
                done = partial(self._done, to, value)
                producer.produce(self.topic, value, partition=to, on_delivery=done)
        if plan.transaction.sends_offset:
            place = TopicPartition(self.topic, 0, plan.transaction.number + 1)
            send = producer.send_offsets_to_transaction
            _until_done(partial(send, [place], self._metadata, GIVE_UP_SECONDS))
        if plan.commit:
            self.checker.change(plan.transaction, Fate.COMMITTING)
            _until_done(partial(producer.commit_transaction, GIVE_UP_SECONDS))
            self.ended(plan.transaction, Fate.COMMITTED)
        else:
            self.checker.change(plan.transaction, Fate.ABORTING)
            _until_done(partial(producer.abort_transaction, GIVE_UP_SECONDS))
            self.ended(plan.transaction, Fate.ABORTED)

    def _recovered(
        self, producer: Producer, transaction: Transaction, error: KafkaException
    ) -> Producer | None:
        """The producer after an abort; None: it cannot go on."""
        if error.args[0].fatal():
            return None
        try:
            _until_done(partial(producer.abort_transaction, GIVE_UP_SECONDS))
        except KafkaException:
            return None
        return producer

    def _done(self, to: int, value: bytes, error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is not None:
            return  # of an aborted transaction, for which it does not matter
        if offset is None:
            self.checker.ack_somewhere(to, value)
        else:
            self.checker.ack(self.name, to, offset, value)


def _until_done(call: Callable[[], object]) -> None:
    """Repeat a call while its error is retriable.

    Raises:
        KafkaException: the transaction must be aborted, or the producer given up.
    """
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while True:
        try:
            call()
        except KafkaException as e:
            if not e.args[0].retriable() or time.monotonic() > deadline:
                raise
        else:
            return


class RefusedError(Exception):
    """A raw request was answered by an error that a repetition does not change."""


class Connected(Client):
    """A client with one plain connection, which it opens again when it breaks."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        host, port = self.bootstrap.rsplit(":", 1)
        self._address = host, int(port)
        self.client: RawClient | None = None

    def connect(self) -> RawClient:
        """A new connection.

        Raises:
            OSError: there is none.
        """
        return RawClient(self._address, _SOCKET_SECONDS, self.name)

    def connected(self) -> RawClient:
        """The connection, or a new one."""
        if self.client is None:
            self.client = self.connect()
        return self.client

    def disconnect(self) -> None:
        if self.client is not None:
            self.client.socket.close()
            self.client = None


class RawTransactor(Transactor, Connected):
    """Plain requests of either style, each repeated over a new connection until it is answered.

    Now and then another instance takes the transactional id over, and what the old one sends then
    must be refused.
    """

    def __init__(self, style: Style, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._style = style

    def run(self) -> None:
        self.producer = RawProducer(self._first_connection(), self.name, self._style)
        try:
            self._until_answered(self.producer.find_coordinator)
            self._initialise(anew=True)
            while not self.stopping.wait(self.pause):
                self._next()
        finally:
            self.disconnect()

    def _first_connection(self) -> RawClient:
        return _until_connected(self.connected)

    def _next(self) -> None:
        plan = self.plan()
        try:
            self._fill(plan)
            if self.rng.random() < _DUELS:
                self._duel(plan)
            else:
                self._end(plan)
        except RefusedError as e:
            self.dropped(plan.transaction, e)
            self._initialise(anew=self.rng.random() < 0.5)

    def _fill(self, plan: Plan) -> None:
        producer = self.producer
        if producer.style.adds and plan.values:
            partitions = sorted(plan.values)
            self._until_answered(partial(producer.add_partitions, self.topic, partitions))
        if plan.values:
            self._produce(plan.values)
        if plan.transaction.sends_offset:
            if producer.style.adds:
                self._until_answered(partial(producer.add_offsets, self.group))
            offset = plan.transaction.number + 1
            self._until_answered(partial(producer.commit_offset, self.group, self.topic, 0, offset))

    def _produce(self, values: dict[int, list[bytes]]) -> None:
        """One request, the same until every partition has acknowledged its batch."""
        request = self.producer.produce_request(self.topic, values)
        acked: dict[int, int] = {}

        def attempt() -> int:
            answers = self.producer.send(request)
            acked.update({p: found.offset for p, found in answers.items() if not found.error})
            return max((found.error for found in answers.values()), default=0)

        self._until_answered(attempt)
        for partition, some in values.items():
            for at, value in enumerate(some):
                if acked[partition] < 0:  # Apache Kafka no longer knows where a repetition lies
                    self.checker.ack_somewhere(partition, value)
                else:
                    self.checker.ack(self.name, partition, acked[partition] + at, value)

    def _end(self, plan: Plan) -> None:
        ending, ended = (
            (Fate.COMMITTING, Fate.COMMITTED) if plan.commit else (Fate.ABORTING, Fate.ABORTED)
        )
        self.checker.change(plan.transaction, ending)
        if plan.values or plan.transaction.sends_offset:
            self._until_answered(partial(self.producer.end, commit=plan.commit))
        self.ended(plan.transaction, ended)

    def _duel(self, plan: Plan) -> None:
        """Another instance aborts the transaction; the first one must not get any further."""
        self.checker.change(plan.transaction, Fate.ABORTING)
        value = b"%s-%d-zombie" % (self.name.encode(), plan.transaction.number)
        self.checker.write(plan.transaction, value)
        zombie = replace(self.producer, sequences=dict(self.producer.sequences))
        self.client = None  # it is the zombie's now
        self.producer.client = _until_connected(self.connected)
        self._initialise(anew=True)
        try:
            with suppress(OSError):
                for what, error in (
                    ("produce", zombie.produce(self.topic, {0: [value]})),
                    ("commit", zombie.end(commit=True)),
                ):
                    if not error:
                        self.checker.misbehaved("zombie", f"{self.name}: {what} was accepted")
        finally:
            zombie.client.socket.close()
        self.ended(plan.transaction, Fate.ABORTED)

    def _initialise(self, *, anew: bool) -> None:
        try:
            self._until_answered(partial(self.producer.initialise, anew=anew))
        except RefusedError:  # as this producer it may be fenced
            self._until_answered(partial(self.producer.initialise, anew=True))

    def _until_answered(self, attempt: Callable[[], int]) -> None:
        """Repeat a request until its error is none.

        Raises:
            RefusedError: it has one that stays.
        """
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while time.monotonic() < deadline:
            try:
                self.producer.client = self.connected()
                error = attempt()
            except OSError:
                self.disconnect()
                time.sleep(0.05)
                continue
            if not error:
                return
            if error not in _RETRIABLE:
                raise RefusedError(ErrorCode(error).name)
            time.sleep(0.02)
        raise RefusedError("no answer")


class Leaver(RawTransactor):
    """Leaves every transaction open: the broker must abort it when it has timed out."""

    def run(self) -> None:
        self.producer = RawProducer(self._first_connection(), self.name, self._style, 1_000)
        try:
            self._until_answered(self.producer.find_coordinator)
            while not self.stopping.wait(self.pause):
                self._initialise(anew=True)
                with suppress(RefusedError):
                    self._fill(self.plan())
                self.ready.set()
        finally:
            self.disconnect()


def _until_connected(connect: Callable[[], RawClient]) -> RawClient:
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while True:
        try:
            return connect()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


class IsolatedConfluent(ConfluentReader):
    """librdkafka at either isolation level."""

    checker: TransactionChecker

    def __init__(self, *args: Any, committed: bool) -> None:
        super().__init__(*args)
        self._committed = committed
        self.settings = {"isolation.level": f"read_{'' if committed else 'un'}committed"}

    def report(self, found: list[Seen]) -> None:
        self.checker.poll_isolated(self.name, found, committed=self._committed)


class Watcher(Connected):
    """A plain read_committed consumer that also reports watermarks and the groups' offsets."""

    checker: TransactionChecker

    def __init__(self, *args: Any, producers: Sequence[str]) -> None:
        super().__init__(*args)
        self._producers = producers
        self._reader = self._new_reader(committed=True)

    def run(self) -> None:
        while not self.stopping.wait(0.02):
            self.look()
        self.disconnect()

    def look(self) -> None:
        """Poll once; an answer that does not come is left out."""
        try:
            self._poll(self.name, self._reader)
            for number, stable in self._reader.stable.items():
                self.checker.watermarks(self.name, number, stable, self._reader.high[number])
            for producer in self._producers:
                self._look_at(producer)
        except OSError:
            self.disconnect()
            time.sleep(0.05)
        else:
            self.ready.set()

    def settle(self, seconds: float) -> dict[int, int]:
        """Look until all transactions have ended, then read everything once at each isolation.

        Returns:
            The high watermarks.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.look()
            if self._reader.is_at_end() and self._reader.stable == self._reader.high:
                break
            time.sleep(0.05)
        for committed in (True, False):
            reader = self._new_reader(committed=committed)
            while not reader.is_at_end() and time.monotonic() < deadline + seconds:
                with suppress(ConnectionResetError):
                    self._poll(last_reader(committed=committed), reader)
        self.disconnect()
        return dict(self._reader.high)

    def _new_reader(self, *, committed: bool) -> IsolatedReader:
        return IsolatedReader(self.topic, self.partitions, committed)

    def _poll(self, name: str, reader: IsolatedReader) -> None:
        found = [
            Seen(number, record.offset, record.value or b"")
            for number, record in reader.poll(self.connected())
        ]
        self.checker.poll_isolated(name, found, committed=reader.committed)

    def _look_at(self, producer: str) -> None:
        topics = [OffsetFetchRequestTopics(name=self.topic, partition_indexes=[0])]
        group = OffsetFetchRequestGroup(group_id=group_of(producer), topics=topics)
        request = OffsetFetchRequest(groups=[group], require_stable=False)
        (found,) = self.connected().call(request, OffsetFetchResponse, 8).groups
        if found.error_code == ErrorCode.NOT_COORDINATOR:  # Apache Kafka makes a topic first
            self.connected().call(FindCoordinatorRequest(key="any"), FindCoordinatorResponse, 3)
        offsets: Iterable[int] = (
            part.committed_offset
            for topic in found.topics
            for part in topic.partitions
            if not found.error_code and not part.error_code
        )
        for offset in offsets:
            self.checker.group_offset(producer, offset)


def last_reader(*, committed: bool) -> str:
    """The consumer that reads everything at the end."""
    return f"last {'committed' if committed else 'uncommitted'} reader"
