"""An org that notices nothing: a producer, a consumer and small calls, in a process of their own.

`python -m tests.hostile.bystander BOOTSTRAP TOPIC SETTINGS`. The settings, a JSON object, are
further ones of librdkafka's clients. A line on its standard input is a question, and is answered by
a JSON object: an `account` comes once all records so far are acknowledged and consumed, and all
calls answered that were due; what is `waiting` are the kinds of calls of which none has been
answered since the question. It ends with its standard input.

The producer and the consumer, at 100 records a second, are librdkafka, which retries what is
retriable; so an error that it reports is one that an application would see. The producer is
idempotent, the consumer a member of a group that commits. `small_ops.py` has the other calls.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from tests.hostile.account import PRODUCE, RECORD, Account, Ledger
from tests.hostile.small_ops import SmallOps

PER_SECOND = 100
_SETTLE_SECONDS = 60.0
_WAIT_SECONDS = 30.0


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
        return Account.of_json(self._ask("account"))

    def waiting(self) -> list[str]:
        """The kinds of calls of which none that begins now is answered, in half a minute."""
        found: list[str] = json.loads(self._ask("waiting"))
        return found

    def _ask(self, what: str) -> str:
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._popen.stdin.write(f"{what}\n")
        line = self._popen.stdout.readline()
        if not line:
            raise AssertionError(f"the bystander has ended: {self._log.read_text()}")
        return line

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
    """The two clients and the small calls, a thread each; the account is shared under a lock."""

    def __init__(self, bootstrap: str, topic: str, settings: str) -> None:
        self._bootstrap = bootstrap
        self._settings: dict[str, str] = json.loads(settings)
        self._topic = topic
        self._lock = threading.Lock()
        self._account = Account()
        self._ledger = Ledger()
        self._small = SmallOps(bootstrap, topic, self._settings, self._ledger)
        self._unseen: dict[int, float] = {}
        """When each acknowledged record that was not consumed was sent."""
        self._offsets: dict[int, int] = {}
        """The record at each offset consumed."""
        self._seen: dict[int, int] = {}
        """The offset of each record consumed."""
        self._sent = self._reported = 0
        self._over = False
        self._paused = False
        steps = (self._produce, self._consume, self._small.run)
        self._threads = [threading.Thread(target=_or_exit, args=[step]) for step in steps]

    def run(self) -> None:
        """Until standard input ends."""
        for thread in self._threads:
            thread.start()
        for line in sys.stdin:
            asked = line.strip()
            answer = json.dumps(self._waiting()) if asked == "waiting" else self._settled().json()
            print(answer, flush=True)
        self._over = True
        self._small.stop()
        for thread in self._threads:
            thread.join()

    def _settled(self) -> Account:
        """The account, when nothing is under way; the producer pauses meanwhile."""
        began = time.monotonic()
        until = began + _SETTLE_SECONDS
        while not self._account.acked and time.monotonic() < until:
            time.sleep(0.01)
        self._paused = True
        while self._under_way(began) and time.monotonic() < until:
            time.sleep(0.01)
        with self._lock:
            account, self._account = self._account, Account()
            account.lost = sorted(self._unseen)
            self._unseen.clear()
        self._ledger.close(account)
        self._paused = False
        return account

    def _waiting(self) -> list[str]:
        since = time.monotonic()
        while (kinds := self._ledger.waiting(since)) and time.monotonic() < since + _WAIT_SECONDS:
            time.sleep(0.01)
        return kinds

    def _under_way(self, began: float) -> bool:
        """Whether something is that was begun, or was due, by this time."""
        with self._lock:
            return (
                self._sent > self._reported
                or bool(self._unseen)
                or not self._small.caught_up(began)
            )

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
                    self._account.acked += 1
                    if number not in self._seen:
                        self._unseen[number] = sent
            if error is None:
                self._ledger.took(PRODUCE, now - sent)
            else:
                self._ledger.failed(PRODUCE, error)

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
            message = consumer.poll(0.05)
            if message is None:
                continue
            error = message.error()
            if error is None:
                self._consumed(message.offset() or 0, bytes(message.value() or b""))
            elif not error.retriable():
                self._ledger.failed(RECORD, error)
        consumer.close()

    def _consumed(self, offset: int, value: bytes) -> None:
        text, sent = value.split()
        number = int(text)
        self._ledger.took(RECORD, time.monotonic() - float(sent))
        with self._lock:
            if self._seen.setdefault(number, offset) != offset:
                self._account.doubled.append(number)
            before = self._offsets.setdefault(offset, number)
            self._unseen.pop(number, None)
        if before != number:
            self._ledger.failed(RECORD, f"offset {offset} was {before}, now {number}")

    def _client_error(self, error: Any) -> None:
        """librdkafka's own: a lost connection is one, and is retried."""
        if error.fatal():
            self._ledger.failed("client", f"fatal: {error}")


def _or_exit(step: Callable[[], None]) -> None:
    """Run a thread's work. A bystander without one of its threads would notice too little."""
    try:
        step()
    except BaseException:
        traceback.print_exc()
        os._exit(1)


if __name__ == "__main__":
    _Traffic(*sys.argv[1:]).run()
