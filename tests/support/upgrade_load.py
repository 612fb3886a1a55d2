"""Clients that go on while programs are replaced, and what each of them must have seen at the end.

    writer (idempotent) ─▶ in ─▶ copier (transactions, classic group) ─▶ out ─▶ reader (KIP-848)
                            └──▶ member of a share group

The records of `in` are numbered. Each of its partitions is copied to the partition of the same
number. So in the end `in` has every number once, in order in each partition, `out` has the same,
and every group is at the end.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from confluent_kafka import (
    AcknowledgeType,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    ShareConsumer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from quafka_proto.schema.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from quafka_proto.schema.group_admin import DescribeGroupsRequest, DescribeGroupsResponse
from quafka_proto.schema.share_groups import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from tests.support import transactions
from tests.support.raw_client import RawClient
from tests.support.steady_load import SteadyLoad

GROUPS = (
    "--group-initial-rebalance-delay-ms", "0",
    "--group-min-session-timeout-ms", "1000",
    "--group-consumer-min-heartbeat-interval-ms", "200",
    "--group-consumer-heartbeat-interval-ms", "300",
    "--group-share-min-heartbeat-interval-ms", "200",
    "--group-share-heartbeat-interval-ms", "300",
    "--group-share-min-record-lock-duration-ms", "1000",
    "--group-share-record-lock-duration-ms", "2000",
)  # fmt: skip
"""What a broker is told, so that the clients need not wait."""
_SOURCE, _TARGET, _PARTITIONS = "in", "out", 3
_COPIERS, _READERS, _SHARERS = "copiers", "readers", "sharers"
_SECONDS = 120.0

Places = dict[int, list[tuple[int, str]]]
"""By partition: offsets and values."""


class _Client:
    """A thread, until it is stopped."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self.problems: list[str] = []
        self._thread = threading.Thread(target=self._guarded)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self.stopping.set()
        self._thread.join()

    def run(self) -> None:
        raise NotImplementedError

    def _guarded(self) -> None:
        try:
            self.run()
        except BaseException as e:
            self.problems.append(f"{type(self).__name__}: {e!r}")


class _Reader(_Client):
    """A member of a consumer group (KIP-848) that commits each batch before it reads the next."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self._bootstrap = bootstrap
        self.seen: set[str] = set()
        self.places: Places = {}

    def run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": _READERS,
                "group.protocol": "consumer",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        consumer.subscribe([_TARGET])
        while not self.stopping.is_set():
            found = [each for each in consumer.consume(100, 0.1) if each.error() is None]
            for message in found:
                value = _text(message)
                self.places.setdefault(message.partition() or 0, []).append(
                    (message.offset() or 0, value)
                )
                self.seen.add(value)
            if found:
                _retried(lambda: consumer.commit(asynchronous=False))
        consumer.close()


class _Sharer(_Client):
    """A member of a share group that accepts everything, explicitly."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self._bootstrap = bootstrap
        self.seen: set[str] = set()
        self._settled: set[str] = set()
        """Whose acknowledgement was answered. An answer can be lost; the record is settled then,
        or it comes again."""

    def run(self) -> None:
        consumer = ShareConsumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": _SHARERS,
                "share.acknowledgement.mode": "explicit",
                "log_level": 0,
            }
        )
        consumer.subscribe([_SOURCE])
        while not self.stopping.is_set():
            found = [each for each in consumer.poll(0.1) if each.error() is None]
            again = self._settled.intersection(map(_text, found))
            if again:
                self.problems.append(f"delivered again after an acknowledgement: {sorted(again)}")
            for message in found:
                consumer.acknowledge(message, AcknowledgeType.ACCEPT)
            if found:
                answers = consumer.commit_sync(20.0)
                failed = {(place.topic, place.partition) for place, e in answers.items() if e}
                self.seen.update(map(_text, found))
                self._settled |= {
                    _text(each) for each in found if (each.topic(), each.partition()) not in failed
                }
        consumer.close()


class UpgradeLoad:
    """All of them. Leaving checks what they have seen."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._bootstrap = bootstrap
        self._log = folder / "copier.log"
        self.writer = SteadyLoad(bootstrap, [_SOURCE], "." * 2_000, pause=0.02)
        self._reader, self._sharer = _Reader(bootstrap), _Sharer(bootstrap)
        self._copier: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        topics = [NewTopic(topic, _PARTITIONS) for topic in (_SOURCE, _TARGET)]
        for made in admin.create_topics(topics).values():
            made.result(_SECONDS)
        earliest = ConfigEntry(
            "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(
            ConfigResource.Type.GROUP, _SHARERS, incremental_configs=[earliest]
        )
        admin.incremental_alter_configs([resource])[resource].result(_SECONDS)
        job = {
            "kind": "confluent-kafka", "bootstrap": self._bootstrap, "id": "copier",
            "group": _COPIERS, "source": _SOURCE, "target": _TARGET,
        }  # fmt: skip
        with self._log.open("wb") as out:
            command = [sys.executable, "-m", "tests.support.copier", json.dumps(job)]
            self._copier = subprocess.Popen(command, stdout=out, stderr=out)
        for client in (self.writer, self._reader, self._sharer):
            client.start()
        self.go_on()
        return self

    def go_on(self) -> None:
        """Wait until records that are written from now on have reached every client."""
        after = len(self.writer.written)
        self._until(lambda: len(self.writer.written) > after + 10)
        new = {each.value for each in self.writer.written[after:]}
        self._until(lambda: bool(new & self._reader.seen) and bool(new & self._sharer.seen))
        self._until(self._is_described)

    def _is_described(self) -> bool:
        """Whether the cluster describes all three groups, each with its member."""
        host, _, port = self._bootstrap.rpartition(":")
        with RawClient((host, int(port))) as client:
            classic = client.call(DescribeGroupsRequest([_COPIERS]), DescribeGroupsResponse, 5)
            consumer = client.call(
                ConsumerGroupDescribeRequest([_READERS]), ConsumerGroupDescribeResponse, 1
            )
            share = client.call(
                ShareGroupDescribeRequest([_SHARERS]), ShareGroupDescribeResponse, 1
            )
        groups = classic.groups[0], consumer.groups[0], share.groups[0]
        return all(each.error_code == 0 and len(each.members) == 1 for each in groups)

    def _until(self, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + _SECONDS
        while not holds():
            clients = self._reader, self._sharer
            problems = [each for client in clients for each in client.problems]
            assert not problems, problems
            assert time.monotonic() < end, (
                f"{len(self.writer.written)} written, {len(self._reader.seen)} read, "
                f"{len(self._sharer.seen)} shared; the copier: {self._log.read_text()[-2000:]}"
            )
            time.sleep(0.02)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.writer.stop()
        try:
            if kind is None:
                written = {each.value for each in self.writer.written}
                self._until(lambda: self._reader.seen >= written and self._sharer.seen >= written)
                self._until(lambda: _committed(self._bootstrap, _COPIERS, _SOURCE) == self._ends)
        finally:
            for client in (self._reader, self._sharer):
                client.join()
            if self._copier is not None:
                self._copier.kill()
                self._copier.wait()
        if kind is None:
            self._check()

    @property
    def _ends(self) -> list[int]:
        found = _by_partition(transactions.read(self._bootstrap, _SOURCE, "read_committed", 3))
        return [found[number][-1][0] + 1 for number in sorted(found)]

    def _check(self) -> None:
        assert self.writer.errors == []
        problems = self._reader.problems + self._sharer.problems
        assert not problems, problems
        source, target = (
            _by_partition(transactions.read(self._bootstrap, topic, "read_committed", _PARTITIONS))
            for topic in (_SOURCE, _TARGET)
        )
        numbers = {
            part: [int(value.partition("-")[2]) for _, value in found]
            for part, found in source.items()
        }
        for part, found in numbers.items():
            assert found == sorted(set(found)), f"partition {part} of {_SOURCE}"
        every = sorted(number for found in numbers.values() for number in found)
        assert every == list(range(len(self.writer.written))), "lost, or there twice"
        copied = {part: [value for _, value in found] for part, found in target.items()}
        assert copied == {part: [value for _, value in found] for part, found in source.items()}
        assert self._reader.places == target
        for part, offset in enumerate(_committed(self._bootstrap, _READERS, _TARGET)):
            end = target[part][-1][0] + 1
            assert offset in (end, end + 1), "with or without the marker of the last transaction"
        assert self._sharer.seen == {each.value for each in self.writer.written}


def _by_partition(rows: list[transactions.Row]) -> Places:
    found: Places = {}
    for part, offset, value in rows:
        found.setdefault(part, []).append((offset, value))
    return found


def _committed(bootstrap: str, group: str, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    asked = [TopicPartition(topic, number) for number in range(_PARTITIONS)]
    found = consumer.committed(asked, _SECONDS)
    consumer.close()
    return [each.offset for each in found]


def _text(message: Message) -> str:
    return (message.value() or b"").decode()


def _retried(call: Callable[[], object]) -> None:
    """Call again while the client says so."""
    end = time.monotonic() + _SECONDS
    while True:
        try:
            call()
        except KafkaException as e:
            error = e.args[0]
            again = error.retriable() or error.code() == KafkaError._TIMED_OUT
            if not again or time.monotonic() > end:
                raise
            time.sleep(0.05)
        else:
            return
