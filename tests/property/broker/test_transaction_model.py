"""The transaction coordinator against a small model of Kafka's semantics, cut at every write.

The model knows no epochs: a transactional id has one living producer instance, every other one is
fenced. A committed transaction's records are visible up to the first record of an open one; each
partition of an ended transaction has one marker; offsets appear with the commit.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quafka_broker.state import BrokerState
from quafka_broker.transactions.transaction import Transaction
from quafka_proto.errors import ErrorCode
from tests.crash.fates import KINDS, Fate, after_power_cut
from tests.crash.recorded_disk import Inode, RecordedDisk, moments
from tests.support.no_threads import no_threads
from tests.support.suites import examples
from tests.unit.broker.tools import ORG, running_state
from tests.unit.broker.transactional import Sender, committed_offset, create, fetch, read

NAMES, INSTANCES, PARTITIONS = 2, 2, 2
"""Instance 0 of each transactional id is a client before KIP-890, instance 1 one after it."""
FENCED = {
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
}
NOT_OPEN = {ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE}


@dataclass(eq=False)
class Open:
    """A transaction; `committed` None: it is open."""

    committed: bool | None = None
    added: set[int] = field(default_factory=set[int])
    written: set[int] = field(default_factory=set[int])
    offset: int | None = None


Entry = tuple[Open, list[bytes]]
"""A batch of a transaction; a marker has no values, and takes one offset."""


class Observed(tuple[Any, ...]):
    """What clients see: of each partition the committed values and both watermarks; the offset."""


class Model:
    """Kafka's semantics."""

    def __init__(self) -> None:
        self.logs: list[list[Entry]] = [[] for _ in range(PARTITIONS)]
        self.open: list[Open | None] = [None] * NAMES
        self.owner: list[int | None] = [None] * NAMES
        self.timed_out = [False] * NAMES
        self.offset = -1

    def lives(self, name: int, instance: int) -> bool:
        return self.owner[name] == instance and not self.timed_out[name]

    def current(self, name: int) -> Open:
        """The open transaction, or a new one."""
        found = self.open[name] = self.open[name] or Open()
        return found

    def end(self, name: int, committed: bool) -> None:
        found = self.open[name]
        self.open[name] = None
        if found is None:
            return
        found.committed = committed
        for partition in found.written:
            self.logs[partition].append((found, []))
        if committed and found.offset is not None:
            self.offset = found.offset

    def seen(self) -> Observed:
        return Observed([*map(self._seen, self.logs), self.offset])

    def is_stable(self) -> bool:
        """Whether no open transaction has an offset."""
        return all(found is None or found.offset is None for found in self.open)

    @staticmethod
    def _seen(log: list[Entry]) -> tuple[list[bytes], int, int]:
        at, stable, visible = 0, None, list[bytes]()
        for transaction, values in log:
            if transaction.committed is None and stable is None:
                stable = at
            if stable is None and transaction.committed:
                visible += values
            at += len(values) or 1
        return visible, at if stable is None else stable, at


async def observe(state: BrokerState) -> Observed:
    """The same of a broker."""
    found: list[Any] = []
    for partition in range(PARTITIONS):
        answer = await fetch(state, partition=partition, committed=True)
        values = await read(state, partition=partition)
        found.append((values, answer.last_stable_offset, answer.high_watermark))
    return Observed([*found, (await committed_offset(state))[0]])


Step = tuple[str, int, int, int]
"""What is done, by which transactional id, by which instance, and a number."""


class Play:
    """Steps on a broker and on the model. Every answer must be the model's."""

    def __init__(self, disk: RecordedDisk) -> None:
        self.model = Model()
        self.disk = disk
        self.history: list[tuple[int, Observed]] = [(0, self.model.seen())]
        """The number of disk operations before a step, and what is seen after it."""
        self.values = 0
        self.last_end: dict[tuple[int, int], tuple[Sender, bool]] = {}
        self.senders: list[list[Sender]] = []

    def connect(self, state: BrokerState) -> None:
        """Use a broker; producers keep what they know."""
        if not self.senders:
            self.senders = [
                [Sender(state, f"id{name}", implicit=bool(n)) for n in range(INSTANCES)]
                for name in range(NAMES)
            ]
        for sender in (each for some in self.senders for each in some):
            sender.state = state

    async def do(self, state: BrokerState, step: Step) -> None:
        kind, name, instance, number = step
        before = len(self.disk.operations)
        sender = self.senders[name][instance]
        if kind == "checkpoint":
            await state.log.checkpoint()
        elif kind == "time out":
            await self._time_out(state, name)
        elif kind == "init":
            assert not await sender.init()
            self.model.end(name, committed=False)
            self.model.owner[name], self.model.timed_out[name] = instance, False
            self.last_end.pop((name, instance), None)
        elif sender.id >= 0:
            work: Coroutine[Any, Any, None] = getattr(self, f"_{kind}")(
                sender, name, instance, number
            )
            await work
        self.history.append((before, self.model.seen()))
        assert await observe(state) == self.model.seen(), step
        stable = (await committed_offset(state, stable=True))[1]
        assert (not stable) == self.model.is_stable()

    async def _time_out(self, state: BrokerState, name: int) -> None:
        def is_due(_found: Transaction) -> bool:
            return True

        was_open = self.model.open[name] is not None
        assert await state.transactions.coordinator.abort((ORG, f"id{name}"), is_due) == was_open
        self.model.end(name, committed=False)
        self.model.timed_out[name] |= was_open

    async def _recover(self, sender: Sender, name: int, instance: int, _number: int) -> None:
        error = await sender.init(recover=True)
        if self.model.owner[name] != instance:
            assert error in FENCED
            return
        assert not error
        self.model.end(name, committed=False)
        self.model.timed_out[name] = False
        self.last_end.pop((name, instance), None)

    async def _write(self, sender: Sender, name: int, instance: int, number: int) -> None:
        partition, lives = number % PARTITIONS, self.model.lives(name, instance)
        if not sender.implicit:
            (error,) = await sender.add("t", partition)
            assert error in ({0} if lives else FENCED)
            if lives:
                self.model.current(name).added.add(partition)
        await self._send(sender, name, instance, number)

    async def _send(self, sender: Sender, name: int, instance: int, number: int) -> None:
        """A batch alone: a client before KIP-890 must have added the partition."""
        partition = number % PARTITIONS
        values = [b"%d" % (self.values + n) for n in range(1 + number // PARTITIONS)]
        self.values += len(values)
        error = (await sender.send("t", partition, *values)).error_code
        if not self.model.lives(name, instance):
            assert error in FENCED
            return
        found = self.model.open[name]
        if not sender.implicit and (found is None or partition not in found.added):
            assert error == ErrorCode.TRANSACTION_ABORTABLE
            return
        assert not error
        found = self.model.current(name)
        found.added.add(partition)
        found.written.add(partition)
        self.model.logs[partition].append((found, values))

    async def _offset(self, sender: Sender, name: int, instance: int, number: int) -> None:
        error = await sender.offsets(number)
        if not self.model.lives(name, instance):
            assert error in FENCED
            return
        assert not error
        self.model.current(name).offset = number

    async def _end(self, sender: Sender, name: int, instance: int, number: int) -> None:
        commit, was_open = bool(number % 3), self.model.open[name] is not None
        asked = Sender(sender.state, sender.name, implicit=sender.implicit)
        asked.id, asked.epoch = sender.id, sender.epoch
        error = await sender.end(commit=commit)
        if not self.model.lives(name, instance):
            # Of a transaction that timed out, its producer may be told that it was aborted.
            may_be_told = self.model.owner[name] == instance and sender.implicit
            assert error in FENCED | (NOT_OPEN if may_be_told else set())
            assert error or not commit
            if not error:  # then it has its new epoch, and goes on
                self.model.timed_out[name] = False
                self.last_end[name, instance] = (asked, commit)
            return
        if not was_open and (commit or not sender.implicit):
            # Before KIP-890 the same end again has the same answer.
            assert error == ErrorCode.INVALID_TXN_STATE or (not error and not sender.implicit)
        else:
            assert not error
        self.model.end(name, committed=commit)
        self.last_end.pop((name, instance), None)
        if was_open and sender.implicit:
            self.last_end[name, instance] = (asked, commit)

    async def _repeat(self, sender: Sender, name: int, instance: int, _number: int) -> None:
        """The last EndTxn of a client after KIP-890, again: its answer, or nothing happens."""
        if (name, instance) not in self.last_end:
            return
        asked, commit = self.last_end[name, instance]
        asked.state = sender.state
        answer = await asked.end_once(commit=commit)
        if self.model.open[name] is not None or not self.model.lives(name, instance):
            assert answer.error_code
        else:
            assert not answer.error_code
            assert (answer.producer_id, answer.producer_epoch) == (sender.id, sender.epoch)


KINDS_OF_STEPS = (
    "init", "recover", "write", "write", "write", "send", "offset", "end", "end", "repeat",
    "time out", "checkpoint", "restart",
)  # fmt: skip
steps = st.lists(
    st.tuples(
        st.sampled_from(KINDS_OF_STEPS),
        st.integers(0, NAMES - 1),
        st.integers(0, INSTANCES - 1),
        st.integers(0, 5),
    ),
    max_size=25,
)
begins: list[Step] = [("init", 0, 0, 0), ("init", 1, 1, 0)]


async def played(todo: list[Step], disk: RecordedDisk | None = None) -> Play:
    """All steps, with a restart where one is due."""
    play = Play(disk or RecordedDisk())
    left = [*begins, *todo]
    with no_threads():
        while left:
            async with running_state(play.disk) as state:
                if not play.senders:
                    await create(state, partitions=PARTITIONS)
                play.connect(state)
                assert await observe(state) == play.model.seen()
                while left:
                    step = left.pop(0)
                    if step[0] == "restart":
                        break
                    await play.do(state, step)
    return play


@given(steps)
@examples(60)
def test_every_answer_is_that_of_the_model(todo: list[Step]) -> None:
    asyncio.run(played(todo))


async def cut_everywhere(todo: list[Step], seed: int, disk: RecordedDisk | None = None) -> int:
    """After each cut, what is seen is what was before or after the step under way."""
    play = await played(todo, disk)
    rng = random.Random(seed)
    created = play.history[1][0]
    checked = 0
    for moment in moments(play.disk):
        if moment.operations < created:
            continue
        begun = [seen for before, seen in play.history if before <= moment.operations]
        left = after_power_cut(moment, Fate(rng.choice(KINDS), rng), rng)
        with no_threads():
            async with running_state(left) as state:
                found = await observe(state)
                assert found in begun[-2:], (moment.operations, found, begun[-2:])
                await _nothing_is_stuck(state)
        checked += 1
    return checked


async def _nothing_is_stuck(state: BrokerState) -> None:
    """New sessions end what is open; then everything is stable."""
    for name in range(NAMES):
        sender = Sender(state, f"id{name}", implicit=True)
        assert not await sender.init()
        await sender.write("t", 0, b"after")
        assert not await sender.end()
    for partition in range(PARTITIONS):
        answer = await fetch(state, partition=partition, committed=True)
        assert answer.last_stable_offset == answer.high_watermark
    assert (await read(state))[-NAMES:] == [b"after"] * NAMES


@given(steps, st.integers(0, 1 << 30))
@examples(8)
def test_a_cut_at_any_write_leaves_a_transaction_whole(todo: list[Step], seed: int) -> None:
    asyncio.run(cut_everywhere(todo, seed))


TWO: list[Step] = [("write", 0, 0, 1), ("write", 1, 1, 0), ("end", 0, 0, 1), ("end", 1, 1, 0)]


def test_the_cuts_are_many() -> None:
    assert asyncio.run(cut_everywhere(TWO, 1)) > 10


class ForgetsSyncs(RecordedDisk):
    """A disk that reports syncs of files as done without doing them."""

    def sync(self, inode: Inode) -> None:
        pass


def test_a_disk_that_lies_is_found_out() -> None:
    with pytest.raises(AssertionError):
        asyncio.run(cut_everywhere(TWO, 1, ForgetsSyncs()))
