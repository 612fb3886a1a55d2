"""Appends to a chain with random latencies, full disks, seals and a takeover at any moment.

What was acknowledged is in the chain, at its offset, and nothing is there that was not appended.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from quafka_broker.partitions.errors import InDoubtError, StorageError
from quafka_broker.wal.chain_durability import ChainPolicy
from quafka_broker.wal.log import Log
from tests.support.memory_chain import MemoryChain
from tests.support.suites import examples
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.test_chain_durability import chained
from tests.unit.broker.tools import checked, open_log, topic_id, values_of

_TOPICS = ("a", "b", "c")
_APPENDS = 12


class _History:
    """What the callers have learnt."""

    def __init__(self) -> None:
        self.sent: dict[str, list[bytes]] = {name: [] for name in _TOPICS}
        self.acked: dict[tuple[str, int], bytes] = {}
        self.refused: set[bytes] = set()


async def _appending(log: Log, history: _History, topic: str, random: Random) -> None:
    for number in range(_APPENDS):
        value = b"%s-%d" % (topic.encode(), number) + bytes(random.choice((0, 0, 500)))
        await log.queue.wait_for_room(topic_id(topic).org_id)
        history.sent[topic].append(value)
        pending = log.queue.append(log.partitions.get(topic_id(topic)), checked(value))
        if random.random() < 0.5:
            await asyncio.sleep(random.uniform(0, 0.002))
        try:
            history.acked[topic, (await pending)[0]] = value
        except InDoubtError:
            pass
        except StorageError:
            history.refused.add(value)


async def _trouble(log: Log, chain: MemoryChain, disk: MemoryDisk, random: Random) -> None:
    for _ in range(random.randrange(4)):
        await asyncio.sleep(random.uniform(0, 0.01))
        match random.randrange(3):
            case 0:
                disk.room = random.randrange(400)
                await asyncio.sleep(random.uniform(0, 0.005))
                disk.room = None
            case 1:
                with suppress(OSError):
                    await log.seal()
            case _:
                if random.random() < 0.3:
                    chain.fail("epoch 2 has taken over the shard")
                    log.give_up("epoch 2 has taken over the shard")


async def _run(seed: int) -> tuple[_History, MemoryChain]:
    random, history, disk = Random(seed), _History(), MemoryDisk()
    chain = MemoryChain(lambda: random.uniform(0, 0.004), most=random.choice((1, 4, 16)))
    policy = ChainPolicy(random.choice((0.0, 0.001)), random.choice((300, 1 << 20)), 60.0)
    segment_bytes = random.choice((1_500, 1 << 20))
    async with chained(chain, policy, segment_bytes=segment_bytes, disk=disk) as log:
        appending = [_appending(log, history, topic, random) for topic in _TOPICS]
        await asyncio.gather(*appending, _trouble(log, chain, disk, random))
        for topic in _TOPICS:  # the owner's readers see what it has acknowledged
            found = await values_of(log, topic)
            assert found == [v for (t, _), v in sorted(history.acked.items()) if t == topic]
    return history, chain


@given(st.integers(0, 1 << 32))
@examples(15)
def test_the_chain_has_what_was_acknowledged(seed: int) -> None:
    async def check() -> None:
        history, chain = await _run(seed)
        async with open_log(chain.disk(), segment_bytes=1 << 20) as log:
            for topic in _TOPICS:
                found = await values_of(log, topic)
                order = [value for value in history.sent[topic] if value in found]
                assert found == order, "in the order of the calls, once"
                assert not history.refused & set(found)
                for (name, offset), value in history.acked.items():
                    assert name != topic or found[offset] == value

    asyncio.run(check())
