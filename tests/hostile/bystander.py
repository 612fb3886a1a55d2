"""A producer and a consumer at 100 records a second, in a process of their own.

`python -m tests.hostile.bystander BOOTSTRAP TOPIC SETTINGS`. The settings, a JSON object, are
further ones of both clients. Each line on its standard input asks for an
account: it waits until all records so far are acknowledged and consumed, and writes an `Account`
as a JSON object. It ends with its standard input.

Both are librdkafka, which retries what is retriable; so an error that it reports is one that an
application would see. The producer is idempotent, the consumer a member of a group that commits.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

PER_SECOND = 100
_SETTLE_SECONDS = 60.0


@dataclass(slots=True)
class Account:
    """What the bystander saw since the last account. Times in seconds."""

    acked: int = 0
    lost: list[int] = field(default_factory=list[int])
    """Acknowledged and not consumed."""
    doubled: list[int] = field(default_factory=list[int])
    """At two offsets."""
    errors: list[str] = field(default_factory=list[str])
    slowest_ack: float = 0.0
    """From `produce` to its delivery report."""
    slowest_record: float = 0.0
    """From `produce` to the consumer."""


class Bystander:
    """The process, as the runner sees it."""

    def __init__(
        self, bootstrap: str, topic: str, log: Path, settings: Mapping[str, str] | None = None
    ) -> None:
        given = (bootstrap, topic, json.dumps(settings or {}))
        with log.open("ab") as errors:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "tests.hostile.bystander", *given],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                bufsize=1,
            )
        self._log = log

    def account(self) -> Account:
        """Everything since the last one, once it has been acknowledged and consumed.

        What is not there within a minute is in the account as lost.
        """
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._popen.stdin.write("account\n")
        line = self._popen.stdout.readline()
        if not line:
            raise AssertionError(f"the bystander has ended: {self._log.read_text()}")
        return Account(**json.loads(line))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._popen.stdin.close()
        try:
            self._popen.wait(10)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        self._popen.stdout.close()


class _Traffic:
    """The two clients, a thread each; the account is shared under a lock."""

    def __init__(self, bootstrap: str, topic: str, settings: str) -> None:
        self._bootstrap = bootstrap
        self._settings: dict[str, str] = json.loads(settings)
        self._topic = topic
        self._lock = threading.Lock()
        self._account = Account()
        self._unseen: dict[int, float] = {}
        """When each acknowledged record that was not consumed was sent."""
        self._offsets: dict[int, int] = {}
        """The record at each offset consumed."""
        self._seen: dict[int, int] = {}
        """The offset of each record consumed."""
        self._sent = self._reported = 0
        self._over = False
        self._paused = False
        self._threads = [threading.Thread(target=step) for step in (self._produce, self._consume)]

    def run(self) -> None:
        """Until standard input ends."""
        for thread in self._threads:
            thread.start()
        for _ in sys.stdin:
            print(json.dumps(asdict(self._settled())), flush=True)
        self._over = True
        for thread in self._threads:
            thread.join()

    def _settled(self) -> Account:
        """The account, when nothing is under way; the producer pauses meanwhile."""
        until = time.monotonic() + _SETTLE_SECONDS
        while not self._account.acked and time.monotonic() < until:
            time.sleep(0.01)
        self._paused = True
        while self._under_way() and time.monotonic() < until:
            time.sleep(0.01)
        with self._lock:
            account, self._account = self._account, Account()
            account.lost = sorted(self._unseen)
            self._unseen.clear()
        self._paused = False
        return account

    def _under_way(self) -> bool:
        with self._lock:
            return self._sent > self._reported or bool(self._unseen)

    def _error(self, what: object) -> None:
        with self._lock:
            if len(self._account.errors) < 20:
                self._account.errors.append(str(what))

    def _produce(self) -> None:
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                "message.timeout.ms": 60_000,
                "reconnect.backoff.max.ms": 500,
                "error_cb": self._client_error,
                **self._settings,
            }
        )
        due = time.monotonic()
        while not self._over:
            due = max(due + 1 / PER_SECOND, time.monotonic())  # what was missed is not made up for
            while (rest := due - time.monotonic()) > 0:
                producer.poll(rest)  # returns at each delivery report
            if not self._paused:
                self._send(producer)
        producer.flush(5)

    def _send(self, producer: Any) -> None:
        number, sent = self._sent, time.monotonic()

        def report(error: Any, _message: Any) -> None:
            now = time.monotonic()
            with self._lock:
                self._reported += 1
                if error is None:
                    account = self._account
                    account.acked += 1
                    account.slowest_ack = max(account.slowest_ack, now - sent)
                    if number not in self._seen:
                        self._unseen[number] = sent
            if error is not None:
                self._error(f"produce: {error}")

        with self._lock:
            self._sent += 1
        value = f"{number} {sent!r}".encode().ljust(100)
        producer.produce(self._topic, value, partition=0, on_delivery=report)

    def _consume(self) -> None:
        from confluent_kafka import Consumer

        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": f"{self._topic}-group",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 500,
                "fetch.wait.max.ms": 100,
                "reconnect.backoff.max.ms": 500,
                "error_cb": self._client_error,
                **self._settings,
            }
        )
        consumer.subscribe([self._topic])
        while not self._over:
            for message in consumer.consume(100, 0.05):
                error = message.error()
                if error is None:
                    self._consumed(message.offset() or 0, bytes(message.value() or b""))
                elif not error.retriable():
                    self._error(f"consume: {error}")
        consumer.close()

    def _consumed(self, offset: int, value: bytes) -> None:
        text, sent = value.split()
        number = int(text)
        with self._lock:
            account = self._account
            account.slowest_record = max(account.slowest_record, time.monotonic() - float(sent))
            if self._seen.setdefault(number, offset) != offset:
                account.doubled.append(number)
            if self._offsets.setdefault(offset, number) != number:
                account.errors.append(f"offset {offset} was {self._offsets[offset]}, now {number}")
            self._unseen.pop(number, None)

    def _client_error(self, error: Any) -> None:
        """librdkafka's own: a lost connection is one, and is retried."""
        if error.fatal():
            self._error(f"fatal: {error}")


if __name__ == "__main__":
    _Traffic(*sys.argv[1:]).run()
