"""Logs over a chain and a folder, taken over from owners that go on writing: nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from pathlib import Path

import pytest

from quafka_broker.chain import uploads
from quafka_broker.chain.chain import Chain
from quafka_broker.chain.collect import Collector
from quafka_broker.chain.errors import FencedError
from quafka_broker.chain.materialise import materialise
from quafka_broker.chain.patience import Patience
from quafka_broker.chain.takeover import take_over
from quafka_broker.partitions.errors import StorageError
from quafka_broker.partitions.producers import Producers
from quafka_broker.wal.chain_durability import ChainLink, ChainPolicy
from quafka_broker.wal.fsync import FsyncPolicy
from quafka_broker.wal.log import Log
from quafka_broker.wal.rewrite_task import RewritePolicy
from quafka_loop import clock
from quafka_objects.asynchronous import AsyncObjectStore
from quafka_proto.chain_format import Owner
from tests.support.injected_store import Faults, InjectedStore
from tests.support.store_folder import RecordedStore
from tests.unit.broker.tools import append, values_of

SEGMENT = 6_000
TOPICS = ("t0", "t1", "t2")


class Broker:
    """One owner, with a log that appends, uploads, takes checkpoints, rewrites and collects."""

    def __init__(self, store: InjectedStore, calls: AsyncObjectStore, folder: Path) -> None:
        self._store, self._calls, self._folder = store, calls, folder
        self.acknowledged: dict[bytes, tuple[str, int]] = {}

    async def open(self) -> None:
        """Take the shard over."""
        while True:  # the living owner may change the manifest at the same moment
            with contextlib.suppress(FencedError):
                taken = await take_over(self._calls, 0, Owner("a", "a:1"), clock.time)
                break
        self.chain: Chain = taken.chain
        headers = [header for _, header in taken.objects]
        self.objects = len(headers)
        self.disk = await asyncio.to_thread(
            materialise, self._store, self.chain, self.chain.manifest, headers, self._folder,
            1 << 20, Patience(0.01),
        )  # fmt: skip
        link = ChainLink(self.chain, ChainPolicy(0.0, 1_000, 30.0))
        self.log = Log(self.disk, FsyncPolicy(), SEGMENT, 10_000, chain=link)
        self.chain.on_fenced = self.log.give_up
        await asyncio.to_thread(self.log.open, Producers())
        self.log.settle(dict.fromkeys(self.log.partitions.ids(), 0))
        self.log.start()
        self.uploads = uploads.Uploads(self.disk)
        self.uploads.start()
        self.collector = Collector(
            self._calls, self.chain.shard, self.chain.epoch, self.disk.files.kept, grace_s=0.3
        )

    async def write(self, numbers: itertools.count[int]) -> None:
        """Append values, each once, until the shard is lost."""
        with contextlib.suppress(StorageError):
            while True:
                number = next(numbers)
                topic, value = TOPICS[number % len(TOPICS)], b"%d-" % number * (1 + number % 40)
                self.acknowledged[value] = topic, await append(self.log, topic, value)

    async def work(self) -> None:
        """Checkpoints, rewriting and collection, over and over."""
        task = self.log.rewrite_task(RewritePolicy(bytes_per_second=1 << 30), lambda: 0)
        try:
            while True:
                with contextlib.suppress(OSError):
                    await self.log.checkpoint()
                    await task.run_once()
                    await self.collector.collect(clock.monotonic())
                await asyncio.sleep(0.02)
        finally:
            await task.close()

    async def close(self) -> None:
        """End without writing anything."""
        self.disk.patience.end_within(0.0)
        await self.chain.close()
        await asyncio.to_thread(self.uploads.close)
        await self.log.close()
        await asyncio.to_thread(self.disk.close)


async def test_nothing_acknowledged_is_lost_over_takeovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(uploads, "_TAIL_OBJECTS", 10)
    store = InjectedStore(RecordedStore(), Faults(busy=0.02, lost=0.02), seed=3)
    calls = AsyncObjectStore(store)
    numbers = itertools.count(1)
    acknowledged: dict[bytes, tuple[str, int]] = {}
    before: Broker | None = None
    epochs: list[int] = []
    writers: list[asyncio.Task[None]] = []
    for turn in range(5):
        broker = Broker(store, calls, tmp_path / str(turn))
        await broker.open()  # the owner before it writes on meanwhile
        epochs.append(broker.log.epochs.current)
        await asyncio.gather(*writers)
        if before is not None:
            acknowledged |= before.acknowledged
            await before.close()
        found = {topic: await values_of(broker.log, topic) for topic in TOPICS}
        for value, (topic, offset) in acknowledged.items():
            assert found[topic][offset] == value
        assert all(len(set(values)) == len(values) for values in found.values())
        assert broker.objects < 200
        work = asyncio.create_task(broker.work())
        writers = [asyncio.create_task(broker.write(numbers)) for _ in range(4)]
        while len(broker.acknowledged) < 150:
            await asyncio.sleep(0.01)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        before = broker
    assert epochs == list(range(epochs[0], epochs[0] + 5)), "each owner has its leader epoch"
    assert before is not None
    for writer in writers:
        writer.cancel()
    await asyncio.gather(*writers, return_exceptions=True)
    await before.close()
    await calls.close()
