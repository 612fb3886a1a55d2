"""One Kafka fetch over several brokers.

Each broker parks fetches for itself, but `min_bytes` is over all of them. So the brokers are
first asked for what they have; if that is not enough, each is asked again, now parked, to answer
once it has its share of what is missing more. When the missing bytes have come, at least one has
its share: it answers, and all are asked again, for less. With min_bytes 1, what nearly all
clients send, the first broker that has anything ends the wait.

A broker that is away answers nothing: its partitions have a retriable error, and the fetch waits
for the others as if they had not been asked for. It does not end because of them, or a consumer
would ask again and again without a pause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Self

from quafka_gateway.cluster.parked_time import add_parked
from quafka_mesh_ops.ops.records import FetchOpResp, FetchOps

Answers = list[FetchOpResp]
Ask = Callable[[int, FetchOps], Awaitable[Answers | None]]
"""Sends an op to a broker; None: it is away."""

_FIRST_PATIENCE, _MOST_PATIENCE = 0.25, 8.0
"""Seconds that the others' answers wait for a broker's. It doubles each time that it was not
enough, so that a slow broker's records come through, and goes back when it was."""
_NOT_YET = FetchOpResp([], high_watermark=-1)


class FetchGather:
    """Asks several brokers at once. Remembers how slow each is."""

    def __init__(self) -> None:
        self._patience: dict[int, float] = {}

    async def fetch(self, ask: Ask, ops: Mapping[int, FetchOps]) -> dict[int, Answers]:
        """What each broker answered; those that are away are missing.

        `ops`: each broker's part of one fetch, equal but for the partitions. A broker that is
        there but slow is answered for: nothing to read yet, the high watermark unknown (-1).
        """
        loop = asyncio.get_running_loop()
        whole = next(iter(ops.values()))
        until = loop.time() + whole.max_wait_ms / 1000
        wanted = min(whole.min_bytes, whole.max_bytes)
        # One response holds max_bytes, whoever they come from.
        share = max(1, whole.max_bytes // len(ops))
        parts = {b: _Part(replace(op, max_bytes=share)) for b, op in ops.items()}
        while True:
            await self._peek(ask, parts, wanted, until)
            if _is_enough(parts, wanted) or loop.time() >= until:
                break
            there = {b: part for b, part in parts.items() if not part.away}
            if not there:
                left = until - loop.time()
                await asyncio.sleep(left)
                add_parked(left)
                break
            if not await self._park(ask, there, wanted, until):
                break
        return {b: part.answers for b, part in parts.items() if not part.away}

    async def _peek(self, ask: Ask, parts: Mapping[int, _Part], wanted: int, until: float) -> None:
        """What they have right now."""
        loop = asyncio.get_running_loop()
        with _Round(
            {b: ask(b, replace(part.op, max_wait_ms=0, min_bytes=0)) for b, part in parts.items()}
        ) as asked:
            give_up = until + self._bear(asked.waiting)
            while asked.waiting:
                answered = await asked.some(give_up)
                if not answered:
                    self._was_late(asked.waiting)
                    break
                for b, answers in answered:
                    parts[b].take(answers)
                    self._patience.pop(b, None)
                if _is_enough(parts, wanted):
                    give_up = min(give_up, loop.time() + self._bear(asked.waiting))

    async def _park(self, ask: Ask, parts: Mapping[int, _Part], wanted: int, until: float) -> bool:
        """Wait for one that has its share of what is missing; whether all must be asked again."""
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
                answered = await asked.some(until + self._bear(asked.waiting))
                if not answered:
                    return False
                in_time = loop.time() < until
                for b, answers in answered:
                    part = parts[b]
                    # By its own count it has its share, whatever that is in whole batches.
                    share = part.found + step if in_time else 0
                    part.take(answers)
                    part.found = max(part.found, share)
                if _is_enough(parts, wanted):
                    return False
                if in_time and any(answers is not None for _, answers in answered):
                    return True
        return False

    def _bear(self, brokers: Iterable[int]) -> float:
        return max((self._patience.get(b, _FIRST_PATIENCE) for b in brokers), default=0.0)

    def _was_late(self, brokers: Iterable[int]) -> None:
        for b in brokers:
            longer = 2 * self._patience.get(b, _FIRST_PATIENCE)
            self._patience[b] = min(longer, _MOST_PATIENCE)


class _Round:
    """One question to each of several brokers; what is unanswered at the end is cancelled."""

    def __init__(self, questions: Mapping[int, Awaitable[Answers | None]]) -> None:
        self._tasks = {asyncio.ensure_future(question): b for b, question in questions.items()}
        self._open = set(self._tasks)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for task in self._open:
            task.cancel()

    @property
    def waiting(self) -> list[int]:
        """The brokers that have not answered."""
        return [self._tasks[task] for task in self._open]

    async def some(self, until: float) -> list[tuple[int, Answers | None]]:
        """The next answers; none if there are none at loop time `until`."""
        left = max(0.0, until - asyncio.get_running_loop().time())
        done, self._open = await asyncio.wait(
            self._open, timeout=left, return_when=asyncio.FIRST_COMPLETED
        )
        return [(self._tasks[task], task.result()) for task in done]


class _Part:
    """What one broker was asked and has answered. `found`: bytes that count for min_bytes."""

    def __init__(self, op: FetchOps) -> None:
        self.op = op
        self.answers = [_NOT_YET] * len(op.partitions)
        self.found = 0
        self.away = False

    def take(self, answers: Answers | None) -> None:
        """Note what it answered; None: it is away."""
        self.away = answers is None
        if answers is not None:
            self.answers = answers
            size = sum(len(batch) for answer in answers for batch in answer.records)
            self.found = max(self.found, size)

    @property
    def final(self) -> bool:
        """Whether there is something to tell at once: an error, a log that diverges."""
        return any(a.error_code or a.diverging_epoch is not None for a in self.answers)


def _is_enough(parts: Mapping[int, _Part], wanted: int) -> bool:
    there = [part for part in parts.values() if not part.away]
    if any(part.final for part in there):
        return True
    return bool(there) and sum(part.found for part in there) >= wanted
