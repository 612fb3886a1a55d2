"""One Kafka fetch over several brokers.

Each broker parks its own fetches, but `min_bytes` counts over all brokers. So the brokers are
first asked for what they have now. If that is not enough, each broker is asked again, and parks
the fetch until it has its share of the missing bytes. When all missing bytes have arrived, at
least one broker has its share: it answers, and all brokers are asked again, for less. With
min_bytes 1, which nearly all clients send, the first broker with records ends the wait.

An unavailable broker gives no answer: its partitions have a retriable error, and the fetch waits
for the other brokers as if the partitions were not in it. The fetch does not end because of them:
otherwise a consumer would fetch again and again without a pause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import Any, Self

from quafka_gateway.cluster.parked_time import add_parked
from quafka_loop.eager_task import EagerTask
from quafka_mesh_ops.ops.records import FetchOpResp, FetchOps

Answers = list[FetchOpResp]
Ask = Callable[[int, FetchOps], Coroutine[Any, Any, Answers | None]]
"""Sends an op to a broker; None: the broker is unavailable."""

_FIRST_PATIENCE, _MOST_PATIENCE = 0.25, 8.0
"""Seconds for which the answers of the other brokers wait for a broker's. The patience doubles each
time that it was too short, so that a slow broker's records come through. It is reset once the
broker answers in time."""
_NOT_YET = FetchOpResp([], high_watermark=-1)


class FetchGather:
    """Asks several brokers at once, with patience for slow ones."""

    def __init__(self) -> None:
        self._patience: dict[int, float] = {}

    async def fetch(self, ask: Ask, ops: Mapping[int, FetchOps]) -> dict[int, Answers]:
        """The answers of each broker, without the unavailable ones.

        `ops`: each broker's part of one fetch, equal except for the partitions. A broker that is
        available but slow counts as empty: nothing to read yet, the high watermark unknown (-1).
        """
        loop = asyncio.get_running_loop()
        whole = next(iter(ops.values()))
        until = loop.time() + whole.max_wait_ms / 1000
        wanted = min(whole.min_bytes, whole.max_bytes)
        # One response holds max_bytes, from all brokers together.
        share = max(1, whole.max_bytes // len(ops))
        parts = {b: _BrokerAnswers(replace(op, max_bytes=share)) for b, op in ops.items()}
        while True:
            await self._peek(ask, parts, wanted, until)
            if _is_enough(parts, wanted) or loop.time() >= until:
                break
            available = {b: part for b, part in parts.items() if not part.unavailable}
            if not available:
                left = until - loop.time()
                await asyncio.sleep(left)
                add_parked(left)
                break
            if not await self._park(ask, available, wanted, until):
                break
        return {b: part.answers for b, part in parts.items() if not part.unavailable}

    async def _peek(
        self, ask: Ask, parts: Mapping[int, _BrokerAnswers], wanted: int, until: float
    ) -> None:
        """Ask for what the brokers have now, without a wait."""
        loop = asyncio.get_running_loop()
        with _Round(
            {b: ask(b, replace(part.op, max_wait_ms=0, min_bytes=0)) for b, part in parts.items()}
        ) as asked:
            give_up = until + self._patience_for(asked.waiting)
            while asked.waiting:
                answered = await asked.next_answers(give_up)
                if not answered:
                    self._lengthen_patience(asked.waiting)
                    break
                for b, answers in answered:
                    parts[b].record(answers)
                    self._patience.pop(b, None)
                if _is_enough(parts, wanted):
                    give_up = min(give_up, loop.time() + self._patience_for(asked.waiting))

    async def _park(
        self, ask: Ask, parts: Mapping[int, _BrokerAnswers], wanted: int, until: float
    ) -> bool:
        """Wait for a broker with its share of the missing bytes. True: ask all brokers again."""
        loop = asyncio.get_running_loop()
        missing = wanted - sum(part.found for part in parts.values())
        step = -(-missing // len(parts))
        wait_ms = max(1, round((until - loop.time()) * 1000))
        with _Round(
            {
                b: ask(b, replace(part.op, max_wait_ms=wait_ms, min_bytes=part.found + step))
                for b, part in parts.items()
            }
        ) as asked:
            while asked.waiting:
                answered = await asked.next_answers(until + self._patience_for(asked.waiting))
                if not answered:
                    return False
                in_time = loop.time() < until
                for b, answers in answered:
                    part = parts[b]
                    # By the broker's own count it has its share, whatever that is in whole batches.
                    share = part.found + step if in_time else 0
                    part.record(answers)
                    part.found = max(part.found, share)
                if _is_enough(parts, wanted):
                    return False
                if in_time and any(answers is not None for _, answers in answered):
                    return True
        return False

    def _patience_for(self, brokers: Iterable[int]) -> float:
        return max((self._patience.get(b, _FIRST_PATIENCE) for b in brokers), default=0.0)

    def _lengthen_patience(self, brokers: Iterable[int]) -> None:
        for b in brokers:
            longer = 2 * self._patience.get(b, _FIRST_PATIENCE)
            self._patience[b] = min(longer, _MOST_PATIENCE)


class _Round:
    """One op to each of several brokers. At the end the unanswered ones are cancelled."""

    def __init__(self, asked: Mapping[int, Coroutine[Any, Any, Answers | None]]) -> None:
        # Each op is sent within the call.
        self._tasks = {EagerTask(answer): b for b, answer in asked.items()}
        self._open = set(self._tasks)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for task in self._tasks:
            if task in self._open:
                task.cancel()

    @property
    def waiting(self) -> list[int]:
        """The brokers that have not answered."""
        return [b for task, b in self._tasks.items() if task in self._open]

    async def next_answers(self, until: float) -> list[tuple[int, Answers | None]]:
        """The next answers; none if loop time `until` comes first."""
        left = max(0.0, until - asyncio.get_running_loop().time())
        done, self._open = await asyncio.wait(
            self._open, timeout=left, return_when=asyncio.FIRST_COMPLETED
        )
        return [(b, task.result()) for task, b in self._tasks.items() if task in done]


class _BrokerAnswers:
    """One broker's op and its latest answers. `found`: the bytes that count for min_bytes."""

    def __init__(self, op: FetchOps) -> None:
        self.op = op
        self.answers = [_NOT_YET] * len(op.partitions)
        self.found = 0
        self.unavailable = False

    def record(self, answers: Answers | None) -> None:
        """Record the latest answers; None: the broker is unavailable."""
        self.unavailable = answers is None
        if answers is not None:
            self.answers = answers
            size = sum(len(batch) for answer in answers for batch in answer.records)
            self.found = max(self.found, size)

    @property
    def final(self) -> bool:
        """Whether the client must have the answers at once: an error, or a diverging log."""
        return any(a.error_code or a.diverging_epoch is not None for a in self.answers)


def _is_enough(parts: Mapping[int, _BrokerAnswers], wanted: int) -> bool:
    available = [part for part in parts.values() if not part.unavailable]
    if any(part.final for part in available):
        return True
    return bool(available) and sum(part.found for part in available) >= wanted
