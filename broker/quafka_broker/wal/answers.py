"""Answers appends, in order and in slices of the event loop.

An answer continues the waiting op within the call (`DirectFuture`), which takes some 60 µs;
hundreds of appends may share a commit.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from quafka_broker.partitions.errors import StorageError
from quafka_broker.partitions.outcome import Outcome
from quafka_broker.wal.commit_group import Append
from quafka_loop import clock

log = logging.getLogger("quafka.broker.wal")

_SLICE_SECONDS = 0.002


class Answers:
    """Answers that are due. For one event loop."""

    def __init__(self) -> None:
        self._due: deque[tuple[Append, Outcome] | Callable[[], None]] = deque()
        self._scheduled = False

    @property
    def are_due(self) -> bool:
        """Whether answers wait for the next turns."""
        return bool(self._due)

    def add(self, append: Append, outcome: Outcome) -> None:
        """Answer an append after all earlier calls, unless its caller is gone."""
        self._due.append((append, outcome))

    def add_call(self, call: Callable[[], None]) -> None:
        """Call this after all earlier answers."""
        self._due.append(call)

    def send(self) -> None:
        """Send due answers. If that takes long, the rest follows in the next turns."""
        until = clock.perf_counter() + _SLICE_SECONDS
        while self._due:
            self._next()
            if clock.perf_counter() >= until:
                self._schedule()
                return

    def send_all(self) -> None:
        """Send all due answers, since the log closes."""
        while self._due:
            self._next()

    def _next(self) -> None:
        due = self._due.popleft()
        try:
            if callable(due):
                due()
            else:
                _answer(*due)
        except Exception:  # a bug in one caller must not cost others their answers
            log.exception("a caller of the log failed")

    def _schedule(self) -> None:
        if not self._scheduled and self._due:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._resume)

    def _resume(self) -> None:
        self._scheduled = False
        self.send()


def settle(appends: Sequence[tuple[Append, Outcome]]) -> None:
    """Apply outcomes to the callers' states before any caller is answered.

    An append is settled once, even if the writer fails afterwards.
    """
    for append, outcome in appends:
        apply, append.settle = append.settle, None
        if apply is not None:
            try:
                apply(outcome)
            except Exception:  # as above
                log.exception("the outcome of an append could not be applied")


def _answer(append: Append, outcome: Outcome) -> None:
    done = append.done
    if done.done():
        return
    if isinstance(outcome, StorageError):
        done.set_exception(outcome)
        done.exception()  # marks it as retrieved: the caller may be gone
    else:
        done.set_result(outcome)
