"""Transactions over two brokers: each is whole, whatever the network loses and whoever loses power.

Producers of both protocols write to both brokers, and commit offsets of groups at both. The
network is cut, loses answers and repeats ops; brokers restart, write checkpoints and shorten their
journals. Then, or after a power cut of both brokers between any two operations of their disks,
everything ends: a committed transaction is at both brokers, another one at neither, and all records
are stable.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quafka_broker.state import BrokerState
from quafka_broker.transactions import finishing
from quafka_broker.transactions.peers import PeerError
from quafka_mesh_ops.ops.base import AnyOp
from quafka_mesh_ops.ops.branches import FinishTransactions
from quafka_proto.errors import ErrorCode
from tests.crash.fates import KINDS, Fate, after_power_cut
from tests.crash.recorded_disk import Moment, Operation, RecordedDisk, moments
from tests.support.no_threads import no_threads
from tests.support.suites import examples
from tests.unit.broker.tools import ORG
from tests.unit.broker.transactional import create, fetch, read
from tests.unit.broker.two_brokers import (
    HERE_TOPIC,
    HOME,
    THERE,
    THERE_TOPIC,
    Network,
    WideSender,
    is_finished,
    topics_with_offsets,
    until,
    up,
)

NODES = (HOME, THERE)
TOPICS = {HOME: HERE_TOPIC, THERE: THERE_TOPIC}
NAMES = ("id0", "id1")
"""The first is a client before KIP-890, the second one after it."""
REFUSED = {ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CONCURRENT_TRANSACTIONS}
REFUSED_OFFSETS = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.CONCURRENT_TRANSACTIONS}


@pytest.fixture(autouse=True, scope="module")
def _hurry() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finishing, "_FIRST_DELAY", 0.005)
        patch.setattr(finishing, "_LONGEST_DELAY", 0.01)
        yield


@dataclass(eq=False)
class Written:
    """A transaction. `may_commit`, `may_abort`: the outcomes that are possible."""

    values: dict[str, list[bytes]] = field(default_factory=lambda: {node: [] for node in NODES})
    may_commit: bool = False
    may_abort: bool = True


class Order(list[Operation]):
    """The operations of one disk, which notes when another disk had how many."""

    def __init__(self, node: str, order: list[str]) -> None:
        super().__init__()
        self._node, self._order = node, order

    def append(self, operation: Operation, /) -> None:
        self._order.append(self._node)
        super().append(operation)


Step = tuple[str, int, int]
"""What is done, by which transactional id or to which broker, and a number."""


class Play:
    """Steps on two brokers, and the transactions that they make."""

    def __init__(self, seed: int) -> None:
        self.network = Network()
        self.order: list[str] = []
        self.disks = {node: RecordedDisk() for node in NODES}
        for node, disk in self.disks.items():
            disk.operations = Order(node, self.order)
        self.rng = random.Random(seed)
        self.running = {node: AsyncExitStack() for node in NODES}
        self.senders: list[WideSender] = []
        self.open: list[Written | None] = [None] * len(NAMES)
        self.done: list[Written] = []
        self.history: list[tuple[int, list[tuple[bool, bool]]]] = []
        """How many disk operations there were before a step, and what was possible after it."""
        self.stable = dict.fromkeys(NODES, 0)
        self.count = 0

    async def start(self, node: str) -> None:
        await self.running[node].enter_async_context(up(self.network, node, self.disks[node]))
        self.network.states[node].transactions.finishing.patience = 0.02
        for sender in self.senders:
            sender.state = self.network.states[HOME]

    async def do(self, step: Step) -> None:
        before = len(self.order)
        kind, who, number = step
        if kind in ("write", "offsets", "end", "init"):
            await getattr(self, f"_{kind}")(who % len(NAMES), number)
        elif kind in ("restart", "checkpoint", "shorten"):
            await getattr(self, f"_{kind}")(NODES[who % 2])
        else:
            await getattr(self, f"_{kind}")()
        self.history.append((before, [(each.may_commit, each.may_abort) for each in self.done]))
        await self.check_stable()

    async def check_stable(self) -> None:
        """The last stable offset never goes back, and shows nothing that is not decided."""
        decided = {
            node: {value for each in self.done if each.may_commit for value in each.values[node]}
            for node in NODES
        }
        for node in NODES:
            state = self.network.states[node]
            answer = await fetch(state, TOPICS[node], committed=True)
            assert answer.last_stable_offset >= self.stable[node]
            self.stable[node] = answer.last_stable_offset
            assert await seen_at(state, node) <= decided[node]

    # --- steps ------------------------------------------------------------------------------

    async def _init(self, name: int, _number: int) -> None:
        sender, found = self.senders[name], self.open[name]
        error = await sender.init()
        assert error in (0, ErrorCode.CONCURRENT_TRANSACTIONS), error
        # The last transaction is aborted in any case; a producer that was refused asks again.
        if found is not None:
            self.open[name] = None
        if error:
            sender.id = -1

    async def _write(self, name: int, number: int) -> None:
        sender, node = self.senders[name], NODES[number % 2]
        if sender.id < 0:
            return
        topic = TOPICS[node]
        if not sender.implicit:
            (error,) = await sender.add(topic, 0)
            if error:
                assert error in REFUSED, error
                return
        value, found = self._next(name)
        found.values[node].append(value)
        error = (await sender.send(topic, 0, value)).error_code
        if error:
            assert error in REFUSED, error
            found.values[node].remove(value)

    async def _offsets(self, name: int, number: int) -> None:
        sender, node = self.senders[name], NODES[number % 2]
        if sender.id < 0:
            return
        value, found = self._next(name)
        found.values[node].append(value)
        if error := await sender.offsets_at(node, value.decode()):
            assert error in REFUSED_OFFSETS, error
            found.values[node].remove(value)

    def _next(self, name: int) -> tuple[bytes, Written]:
        """Something new to write, and the transaction that it is for."""
        self.count += 1
        found = self.open[name]
        if found is None:
            found = self.open[name] = Written()
            self.done.append(found)
        return b"%d" % self.count, found

    async def _end(self, name: int, number: int) -> None:
        sender, found, commit = self.senders[name], self.open[name], bool(number % 3)
        if sender.id < 0:
            return
        if found is not None:
            found.may_commit = commit
            self.history.append(
                (len(self.order), [(each.may_commit, each.may_abort) for each in self.done])
            )
        error = await sender.end(commit=commit)
        if found is None:
            assert error in {0, ErrorCode.INVALID_TXN_STATE} | REFUSED
            return
        if error:  # of a transaction in which every write was refused
            assert error in REFUSED
            found.may_commit = False
            return
        found.may_abort = not commit
        self.open[name] = None

    async def _cut(self) -> None:
        self.network.cut()

    async def _heal(self) -> None:
        self.network.heal()
        self.network.copies = 1

    async def _lose(self) -> None:
        def lose(_op: AnyOp) -> None:
            if self.rng.random() < 0.3:
                raise PeerError("lost")

        self.network.before = self.network.after = lose
        self.network.copies = self.rng.choice((1, 2))

    async def _repeat(self) -> None:
        """An earlier end arrives again."""
        old = [op for op in self.network.sent if isinstance(op, FinishTransactions)]
        if old:
            branches = self.network.states[THERE].transactions.branches
            for end in self.rng.choice(old).transactions:
                assert not await branches.finish(ORG, HOME, end)

    async def _restart(self, node: str) -> None:
        await self.running[node].aclose()
        await self.start(node)

    async def _checkpoint(self, node: str) -> None:
        await self.network.states[node].log.checkpoint()

    async def _shorten(self, node: str) -> None:
        transactions = self.network.states[node].transactions
        transactions.events_kept = 0
        await transactions.shorten()


KINDS_OF_STEPS = (
    "write", "write", "write", "offsets", "offsets", "end", "end", "init", "cut", "heal", "lose",
    "repeat", "restart", "checkpoint", "shorten",
)  # fmt: skip
steps = st.lists(
    st.tuples(st.sampled_from(KINDS_OF_STEPS), st.integers(0, 1), st.integers(0, 5)), max_size=25
)


@asynccontextmanager
async def playing(todo: list[Step], seed: int) -> AsyncGenerator[Play]:
    """All steps."""
    play = Play(seed)
    with no_threads():
        try:
            for node in NODES:
                await play.start(node)
                await create(play.network.states[node], TOPICS[node], 1)
            play.senders = [
                WideSender(play.network, name, implicit=bool(number))
                for number, name in enumerate(NAMES)
            ]
            play.history.append((0, []))
            for sender in play.senders:
                assert not await sender.init()
            for step in todo:
                await play.do(step)
            yield play
        finally:
            for each in play.running.values():
                await each.aclose()


async def everything_ends(network: Network) -> list[set[bytes]]:
    """New sessions abort what is open. Returns what readers then see at each broker."""
    network.heal()
    network.copies = 1
    senders = [
        WideSender(network, name, implicit=bool(number)) for number, name in enumerate(NAMES)
    ]
    for sender in senders:
        while error := await sender.init():
            assert error == ErrorCode.CONCURRENT_TRANSACTIONS
            await asyncio.sleep(0.005)
    await until(lambda: is_finished(network))
    for sender in senders:
        for node in NODES:
            await sender.write(TOPICS[node], 0, b"after")
        assert not await sender.end()
    await until(lambda: is_finished(network))
    found: list[set[bytes]] = []
    for node in NODES:
        answer = await fetch(network.states[node], TOPICS[node], committed=True)
        assert answer.last_stable_offset == answer.high_watermark
        values = await read(network.states[node], TOPICS[node])
        assert len(values) - values.count(b"after") == len(set(values) - {b"after"})
        assert values.count(b"after") == len(NAMES)
        found.append(await seen_at(network.states[node], node))
    return found


async def seen_at(state: BrokerState, node: str) -> set[bytes]:
    """The values that readers see, and the topics with offsets that a group has committed."""
    values = set(await read(state, TOPICS[node]))
    topics = await topics_with_offsets(state)
    assert len(topics) == len(set(topics))
    return values.union(topic.encode() for topic in topics)


def check(
    written: list[Written], possible: list[tuple[bool, bool]], seen: list[set[bytes]]
) -> None:
    """Each transaction is at both brokers or at neither, as it was decided."""
    for number, each in enumerate(written):
        may_commit, may_abort = possible[number] if number < len(possible) else (False, True)
        whole = [set(each.values[node]) <= seen[at] for at, node in enumerate(NODES)]
        nothing = [not set(each.values[node]) & seen[at] for at, node in enumerate(NODES)]
        assert (may_commit and all(whole)) or (may_abort and all(nothing)), (number, each, seen)


@given(steps, st.integers(0, 1 << 30))
@examples(25)
def test_each_transaction_is_whole(todo: list[Step], seed: int) -> None:
    async def run() -> None:
        async with playing(todo, seed) as play:
            seen = await everything_ends(play.network)
            check(play.done, [(each.may_commit, each.may_abort) for each in play.done], seen)

    asyncio.run(run())


async def cut_everywhere(todo: list[Step], seed: int, every: int) -> int:
    """Cut the power of both brokers at some of the moments; returns how many."""
    async with playing(todo, seed) as play:
        pass
    rng = random.Random(seed)
    walks = {node: moments(disk) for node, disk in play.disks.items()}
    now: dict[str, Moment] = {node: next(walk) for node, walk in walks.items()}
    # Before the first step, not even the topics are durable.
    begun = play.history[1][0] if len(play.history) > 1 else len(play.order)
    checked = 0
    for at, node in enumerate(play.order, 1):
        now[node] = next(walks[node])
        if at < begun or rng.randrange(every):
            continue
        possible = [found for before, found in play.history if before < at]
        network = Network()
        async with AsyncExitStack() as stack:
            for each in NODES:
                left = after_power_cut(now[each], Fate(rng.choice(KINDS), rng), rng)
                with no_threads():
                    await stack.enter_async_context(up(network, each, left))
            with no_threads():
                seen = await everything_ends(network)
        check(play.done, _either(possible[-2:]), seen)
        checked += 1
    return checked


def _either(possible: list[list[tuple[bool, bool]]]) -> list[tuple[bool, bool]]:
    """The outcomes that are possible before or after the step under way."""
    *before, after = possible
    if not before:
        return after
    old = before[0] + [(False, True)] * (len(after) - len(before[0]))
    return [(a or b, c or d) for (a, c), (b, d) in zip(old, after, strict=True)]


WIDE: list[Step] = [
    ("write", 0, 0), ("write", 0, 1), ("end", 0, 1), ("write", 1, 1), ("write", 1, 0),
    ("offsets", 1, 1), ("end", 1, 1), ("write", 0, 1), ("offsets", 0, 1), ("end", 0, 0),
    ("checkpoint", 0, 0), ("write", 1, 1), ("offsets", 1, 0), ("checkpoint", 1, 0), ("end", 1, 1),
    ("offsets", 0, 1), ("cut", 0, 0), ("end", 0, 1),
]  # fmt: skip


def test_power_cuts_of_both_brokers_leave_transactions_whole() -> None:
    assert asyncio.run(cut_everywhere(WIDE, 1, 4)) > 20


@given(steps, st.integers(0, 1 << 30))
@examples(3)
def test_power_cuts_at_any_moment(todo: list[Step], seed: int) -> None:
    asyncio.run(cut_everywhere(todo, seed, 20))
