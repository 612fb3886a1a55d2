"""What it costs the broker to know every group's lag, as its metrics ask: CPU time, no mesh."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence

from quafka_broker.ops import offsets
from quafka_broker.state import BrokerState
from quafka_mesh_ops.ops.group_offsets import CommitOffset, CommitOffsets
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import ORG, checked, context, running_state

_PARTITIONS = 10
_BATCHES = 1_000


async def _commit(state: BrokerState, groups: int, end: int | None = None) -> None:
    """Each group commits another offset in every partition; all of them `end`, if that is given."""
    for number in range(groups):
        offset = number % (2 * _BATCHES) if end is None else end
        parts = [CommitOffset("t", partition, offset) for partition in range(_PARTITIONS)]
        op = CommitOffsets(f"g{number}", -1, "", "", parts)
        await offsets.commit(state, context(), op)


async def _ask(state: BrokerState) -> tuple[float, float]:
    """Seconds of CPU for every group once, and the longest that others had to wait."""
    began, last, longest = time.process_time(), time.perf_counter(), 0.0
    async for _ in state.groups.lags.of_every_group(
        state.groups.every_group(), state.groups.now_ms
    ):
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    return time.process_time() - began, longest


async def _table(groups: int) -> None:
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(ORG, "t", _PARTITIONS)
        for number in range(_PARTITIONS):
            partition = state.log.partitions.get(topic.partition_id(number))
            for _ in range(_BATCHES):
                await state.log.queue.append(partition, checked(b"v", b"v"))
        print(f"{groups} groups, {_PARTITIONS} partitions each: µs of CPU a partition")
        for what, end in (
            ("behind, seen first", None),
            ("behind, as before", None),
            ("no lag", 2 * _BATCHES),
        ):
            await _commit(state, groups, end)
            seconds, longest = await _ask(state)
            each = seconds / groups / _PARTITIONS * 1e6
            print(f"  {what:20} {each:6.1f}    longest slice {longest * 1e3:5.1f} ms")


def main(arguments: Sequence[str] = ()) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="tests.bench lag")
    parser.add_argument("--groups", type=int, default=1_000)
    asyncio.run(_table(parser.parse_args(arguments).groups))
