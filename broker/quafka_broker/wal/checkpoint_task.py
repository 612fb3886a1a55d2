"""Takes a checkpoint while the log continues: slices on the event loop, the file in a thread."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar

from quafka_broker.partitions.partition import PartitionId
from quafka_broker.wal.checkpoint_file import (
    CheckpointWriter,
    FoundCheckpoints,
    SavedPartition,
    pack_partitions,
)
from quafka_broker.wal.contents import Contents
from quafka_broker.wal.disk import Disk
from quafka_broker.wal.reserve import Reserve
from quafka_loop import clock, threads

log = logging.getLogger("quafka.broker.wal")

_SLICE = 0.002
"""Seconds of the event loop per slice. A partition is never split."""

SectionSource = Callable[[], AsyncGenerator[Sequence[Any]]]
"""Makes the blocks of a checkpoint's section, one after the other: lists of msgpack values.

Each step takes a few milliseconds of the event loop at most.
"""

T = TypeVar("T")


class CheckpointSections:
    """The sections of checkpoints that belong to other parts of the broker.

    Attributes:
        sources: make the blocks of sections.
        loaded: the blocks of sections without a source, as this start has read them. They are
            written unchanged.
    """

    def __init__(self) -> None:
        self.sources: dict[str, SectionSource] = {}
        self.loaded: dict[str, list[list[Any]]] = {}

    def keep(self, section: str, source: SectionSource) -> None:
        """Write a section from this source to each checkpoint from now on."""
        self.loaded.pop(section, None)
        self.sources[section] = source

    def kept(self, section: str) -> list[list[Any]]:
        """The blocks of a section in the checkpoint that this start has read, before `keep`."""
        return self.loaded.get(section, [])


class CheckpointTask:
    """One log's checkpoints, one at a time."""

    def __init__(
        self,
        disk: Disk,
        contents: Contents,
        reserve: Reserve,
        found: FoundCheckpoints,
        sections: CheckpointSections,
        make_durable: Callable[[], Awaitable[tuple[int, int]]],
    ) -> None:
        """`found`: the existing checkpoints. `make_durable` syncs the log; returns up to where."""
        self._disk = disk
        self._contents = contents
        self._reserve = reserve
        self._number = found.newest
        self._previous = found.number
        # The ids up to which the second newest and the newest checkpoint cover everything.
        newest = found.checkpoint
        self._covered = (0, newest.next_id if newest is not None else 0)
        self._sections = sections
        if newest is not None:
            sections.loaded = dict(newest.sections)
        self._make_durable = make_durable
        self._thread = threads.ThreadPoolExecutor(1, thread_name_prefix="wal-checkpoint")

    def close(self) -> None:
        """Release the thread."""
        self._thread.shutdown()

    @property
    def both_cover(self) -> int:
        """Ids below this one are covered by each of the two kept checkpoints."""
        return min(self._covered)

    async def take_checkpoint(self) -> None:
        """Write a checkpoint; on a full disk, with the reserve.

        Raises:
            OSError: the checkpoint could not be written; the previous one remains valid.
        """
        try:
            await self._take()
        except OSError as e:
            if e.errno != errno.ENOSPC or not self._reserve.release():
                raise
            await self._take()

    async def _take(self) -> None:
        self._number += 1
        writer = await self._in_thread(partial(CheckpointWriter, self._disk, self._number))
        try:
            contents = self._contents
            segments = [segment.state() for segment in contents.segments]
            damages = list(contents.quarantine.damages)
            epochs = contents.epochs.dump()
            covered = contents.next_id
            begin = partial(writer.begin, covered, segments, damages, epochs)
            partitions = list(contents.partitions)
            await self._in_thread(begin)
            for packed in self._slices(partitions):
                await self._in_thread(partial(writer.partitions, packed))
            await self._write_sections(writer)
            end_id = contents.next_id
            durable = await self._make_durable()
            evicted = contents.producers.dump_evicted()
            finish = partial(writer.finish, durable, end_id, evicted, keep=self._previous)
            await self._in_thread(finish)
        except BaseException:
            self._thread.submit(writer.abandon)
            raise
        self._previous = self._number
        self._covered = (self._covered[1], covered)

    async def _write_sections(self, writer: CheckpointWriter) -> None:
        for name, blocks in self._sections.loaded.items():
            for block in blocks:
                await self._in_thread(partial(writer.section, name, block))
        for name, source in self._sections.sources.items():
            async with aclosing(source()) as made:
                async for values in made:
                    await self._in_thread(partial(writer.section, name, values))

    def _slices(self, partitions: list[PartitionId]) -> Iterator[bytes]:
        """Packed slices, each with the state of its partitions at the time of packing."""
        contents = self._contents
        slice_: list[SavedPartition] = []
        until = clock.perf_counter() + _SLICE
        for id_ in partitions:
            partition = contents.partitions.get(id_)
            if partition is None:  # deleted meanwhile
                continue
            producers = contents.producers.dump(id_)
            slice_.append(SavedPartition(id_, contents.next_id, partition.dump(), producers))
            if clock.perf_counter() >= until:
                yield pack_partitions(slice_)
                slice_ = []
                until = clock.perf_counter() + _SLICE
        yield pack_partitions(slice_)

    async def _in_thread(self, job: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, job)
