"""What a bystander has seen: records, errors, and the latencies of each kind of call."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field
from typing import Self

PRODUCE, RECORD = "produce", "record"
METADATA, LIST_OFFSETS = "metadata", "list offsets"
COMMIT, PRODUCER_ID = "commit", "producer id"
JOIN, HEARTBEAT = "join", "heartbeat"
KINDS = (PRODUCE, RECORD, METADATA, LIST_OFFSETS, COMMIT, PRODUCER_ID, JOIN, HEARTBEAT)
"""PRODUCE: from `produce` to its delivery report; RECORD: from `produce` to the consumer; JOIN: a
member joins a group, gets its assignment and leaves."""
_MOST_ERRORS = 20


@dataclass(slots=True)
class Latencies:
    """Of one kind since the last account, in seconds.

    Attributes:
        count: the calls, each with all of its attempts, that have succeeded or failed for good.
        errors: answers with an error, and lost connections.
    """

    count: int = 0
    errors: int = 0
    p50: float = 0.0
    p99: float = 0.0
    slowest: float = 0.0


@dataclass(slots=True)
class Account:
    """What the bystander saw since the last account. Times in seconds."""

    acked: int = 0
    lost: list[int] = field(default_factory=list[int])
    """Acknowledged and not consumed."""
    doubled: list[int] = field(default_factory=list[int])
    """At two offsets."""
    errors: list[str] = field(default_factory=list[str])
    """Those that a client library does not retry."""
    retried: list[str] = field(default_factory=list[str])
    """The others, each once."""
    kinds: dict[str, Latencies] = field(default_factory=dict[str, Latencies])

    def json(self) -> str:
        """As a JSON object on one line."""
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: str) -> Self:
        """Read what `json` wrote."""
        values = json.loads(text)
        kinds = {kind: Latencies(**its) for kind, its in values.pop("kinds").items()}
        return cls(**values, kinds=kinds)


class Ledger:
    """Collects the latencies and errors of all clients of a bystander, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds: dict[str, list[float]] = defaultdict(list)
        self._errors: Counter[str] = Counter()
        self._failed: list[str] = []
        self._retried: dict[str, None] = {}
        self._latest: dict[str, float] = dict.fromkeys(KINDS, 0.0)
        """When the last call of each kind that has succeeded was due."""

    def took(self, kind: str, seconds: float) -> None:
        """A call has succeeded now, so long after it was due."""
        due = time.monotonic() - seconds
        with self._lock:
            self._seconds[kind].append(seconds)
            self._latest[kind] = max(self._latest[kind], due)

    def gave_up(self, kind: str, seconds: float) -> None:
        """A call has failed for good, so long after it was due."""
        with self._lock:
            self._seconds[kind].append(seconds)

    def waiting(self, since: float) -> list[str]:
        """The kinds of which no call has succeeded that was due after this time."""
        with self._lock:
            return [kind for kind, due in self._latest.items() if due <= since]

    def failed(self, kind: str, what: object) -> None:
        """An error that a client library does not retry."""
        with self._lock:
            self._errors[kind] += 1
            if len(self._failed) < _MOST_ERRORS:
                self._failed.append(f"{kind}: {what}")

    def retried(self, kind: str, what: object) -> None:
        """An error after which the call is made again."""
        with self._lock:
            self._errors[kind] += 1
            self._retried[f"{kind}: {what}"] = None

    def close(self, account: Account) -> None:
        """Enter everything since the last time into an account."""
        with self._lock:
            seconds, self._seconds = self._seconds, defaultdict(list)
            errors, self._errors = self._errors, Counter()
            account.errors, self._failed = self._failed, []
            account.retried, self._retried = list(self._retried), {}
        account.kinds = {
            kind: _summary(sorted(seconds[kind]), errors[kind])
            for kind in KINDS
            if seconds[kind] or errors[kind]
        }


def _summary(seconds: list[float], errors: int) -> Latencies:
    if not seconds:
        return Latencies(errors=errors)
    last = len(seconds) - 1
    p50, p99 = (seconds[round(share * last)] for share in (0.5, 0.99))
    return Latencies(len(seconds), errors, p50, p99, seconds[-1])
