"""Two gateways, one broker, topics that are deleted, made again and cut: no read is stale.

Every record says which incarnation of the topic it was produced to and at which offset. A fetch
may show what was true at any moment between its request and its answer, and nothing older; only
records that another gateway acknowledged may be missing for as long as watermarks are kept.
"""

from __future__ import annotations

import asyncio
import random
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from quafka_gateway.fetch import standing_polls, watermark_refresh
from quafka_mesh_ops.ops.records import FetchOp, FetchOps
from quafka_proto.errors import ErrorCode
from tests.support.suites import examples
from tests.unit.broker.tools import ORG
from tests.unit.gateway.near_broker import Edge, running_edge, values

_MAX_AGE = 0.02
_LONGEST_DELAY = 0.03
_SETTLED = 0.02
"""More than an answer is delayed: the answer to an op may come after those to later ops."""


class History:
    """The states of the topic, by a count of completed changes."""

    def __init__(self, edge: Edge) -> None:
        self.edge = edge
        self.incarnation = 0
        self.log_start = 0
        self.deleted: set[bytes] = set()
        """The ids of deleted topics."""
        self.ends: list[tuple[float, Edge, int, int]] = []
        """When which gateway acknowledged records up to an offset of an incarnation."""

    async def produce(self, edge: Edge) -> None:
        topic = edge.state.registry.find(ORG, "t", b"")
        if topic is not None:
            partition = edge.state.log.partitions.get(topic.partition_id(0))
            incarnation = self.incarnation
            end = await edge.produce_here(b"%d:%d" % (incarnation, partition.high_watermark))
            self.ends.append((asyncio.get_running_loop().time(), edge, incarnation, end))

    def end_for(self, edge: Edge) -> int:
        """The offset that a fetch through this gateway must reach if it arrives now."""
        old = asyncio.get_running_loop().time() - _MAX_AGE - _LONGEST_DELAY
        return max(
            (
                end
                for when, through, incarnation, end in self.ends
                if incarnation == self.incarnation and (through is edge or when < old)
            ),
            default=0,
        )

    async def make_anew(self) -> None:
        topic = self.edge.state.registry.find(ORG, "t", b"")
        assert topic is not None
        await self.edge.state.topics.delete(topic)
        self.deleted.add(topic.uuid)
        self.incarnation += 1
        self.log_start = 0
        await self.edge.state.topics.create(ORG, "t", 1)

    async def cut(self) -> None:
        topic = self.edge.state.registry.find(ORG, "t", b"")
        assert topic is not None
        partition = self.edge.state.log.partitions.get(topic.partition_id(0))
        to = (partition.log_start + partition.high_watermark + 1) // 2
        await self.edge.state.topics.delete_records({topic: {0: to}})
        self.log_start = to

    async def fetch(self, edge: Edge, offset: int, max_wait_ms: int) -> None:
        incarnation, log_start = self.incarnation, self.log_start
        least = self.end_for(edge)
        answer = await edge.fetch(offset, max_wait_ms=max_wait_ms)
        if answer.error_code:
            assert answer.error_code in (
                ErrorCode.OFFSET_OUT_OF_RANGE,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
            return
        got = [tuple(map(int, value.split(b":"))) for value in values(answer)]
        assert [number for _, number in got] == list(range(offset, offset + len(got)))
        if got and got[-1][0] == incarnation:
            assert answer.high_watermark >= least, "without what was acknowledged before"
            assert offset + len(got) >= least
        for of, number in got:
            assert of >= incarnation, "of a topic that was deleted before the request"
            assert of > incarnation or number >= log_start, "below the log start"

    async def idle(self, edge: Edge) -> None:
        """Fetch at the tail, and then again for as long as nothing is found."""
        reader, standing = edge.reader, edge.reader.standing
        offset = max((end for _, _, of, end in self.ends if of == self.incarnation), default=0)
        op = FetchOps([FetchOp("t", 0, offset, 1 << 20)], 5, 1, 1 << 20)
        answers = await reader.fetch(op, None)
        keys = reader.tail_of(op, answers)
        if keys is None:
            return
        for _ in range(10):
            poll = standing.find(op.partitions, keys, 0.05)
            incarnation, log_start, least = self.incarnation, self.log_start, self.end_for(edge)
            is_deleted = keys[0].topic_id in self.deleted
            ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            wait = standing.wait(poll, random.choice([0.0, 0.005]), ended.set_result)
            if wait is None:  # the whole way
                await asyncio.sleep(0.005)
                answers = await reader.fetch(op, None)
                keys = reader.tail_of(op, answers)
                if keys is None:
                    return
            elif not await ended:
                return
            else:
                assert not is_deleted, "of a topic that was deleted before the request"
                assert answers[0].log_start_offset >= log_start, "below the log start"
                assert incarnation != self.incarnation or offset >= least


async def run(seed: int, steps: list[str]) -> None:
    random_ = random.Random(seed)
    async with running_edge(lease_seconds=0.1) as edge:
        other = Edge(edge.state)
        history = History(edge)
        edges = [edge, other]
        deaf = random_.random() < 0.3
        tasks: list[asyncio.Task[None]] = []
        changing = asyncio.create_task(asyncio.sleep(0))
        for number, step in enumerate(steps):
            for one in edges:
                one.broker.delay_answer = random_.choice([0.0, 0.0, 0.002, 0.01])
                one.broker.lose_leases = deaf and number > 10 and one is other
            if step == "produce":
                through = random_.choice(edges)
                through.broker.delay_ack = random_.choice([0.0, 0.0, 0.002, 0.01])
                await history.produce(through)
            elif step == "idle":
                tasks.append(asyncio.create_task(history.idle(random_.choice(edges))))
                await asyncio.sleep(random_.choice([0, 0.001, 0.012]))
            elif step in ("anew", "cut"):
                await asyncio.wait({changing})
                change = history.make_anew if step == "anew" else history.cut
                changing = asyncio.create_task(change())
                tasks.append(changing)
            else:
                offset = history.log_start + random_.randrange(3)
                wait = random_.choice([0, 0, 5])
                fetch = history.fetch(random_.choice(edges), offset, wait)
                tasks.append(asyncio.create_task(fetch))
                await asyncio.sleep(random_.choice([0, 0, 0.001, 0.012]))
        await asyncio.gather(*tasks)
        await other.reader.close()


STEPS = st.sampled_from(["fetch"] * 6 + ["idle"] * 3 + ["produce"] * 3 + ["anew", "cut"])


@examples(40)
@given(st.integers(0, 1 << 30), st.lists(STEPS, min_size=10, max_size=60))
def test_no_answer_is_older_than_its_request(seed: int, steps: list[str]) -> None:
    with (
        patch.object(watermark_refresh, "MAX_AGE_SECONDS", _MAX_AGE),
        patch.object(standing_polls, "_SETTLED_SECONDS", _SETTLED),
    ):
        asyncio.run(run(seed, steps))
