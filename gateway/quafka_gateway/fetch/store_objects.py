"""Record batches in the objects of the brokers' store, which this gateway reads itself.

Neighbours are read with one request, even if a little other data lies between them: a request costs
more than a few hundred KiB. Each batch is verified: nothing has verified it since it was stored.

While the store does not answer this gateway, the brokers are asked for bytes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from quafka_mesh_ops.ops.base import Buffer
from quafka_mesh_ops.ops.places import Extent, ObjectPlace, unpack_extents
from quafka_objects.asynchronous import AsyncObjectStore
from quafka_objects.errors import ObjectNotFoundError
from quafka_proto.chain_format import FILES
from quafka_proto.errors import Malformed
from quafka_proto.records import PATCHED_SIZE, crc32c, read_header

log = logging.getLogger("quafka.gateway.places")

_GAP = 256 << 10
_MOST_BYTES = 4 << 20
"""Bytes of one request; a single batch may be larger. Several requests share the path."""
_DEADLINE_S = 10.0
"""The deadline of all requests of an answer."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
"""Seconds without reads after a failed one."""


T = TypeVar("T")


class WrongObjectError(OSError):
    """An object does not have the batches that the broker has named."""


class StoreObjects:
    """Reads batches from one store."""

    def __init__(self, store: AsyncObjectStore) -> None:
        self._store = store
        self._silent_until = 0.0  # loop time
        self._pause_s = _FIRST_PAUSE_S

    @property
    def readable(self) -> bool:
        """Whether to ask the store: it has answered lately, or it is time to try again."""
        return asyncio.get_running_loop().time() >= self._silent_until

    async def batches(self, places: Sequence[ObjectPlace]) -> list[Buffer]:
        """The batches of these places, in order.

        Raises:
            ProtocolError: the places cannot be read.
            OSError: an object is not there, or is not as the broker says, or does not come in time.
        """
        runs = [
            (place.key, run) for place in places for run in _runs(unpack_extents(place.extents))
        ]
        try:
            async with asyncio.timeout(_DEADLINE_S):
                read = await _in_parallel(self._read(path, run) for path, run in runs)
        except (ObjectNotFoundError, WrongObjectError) as e:
            log.warning("records come by value: %s", e)  # the broker reports the error
            raise
        except OSError as e:
            self._fail(e)
            raise
        self._pause_s = _FIRST_PAUSE_S
        return [batch for batches in read for batch in batches]

    def _fail(self, error: OSError) -> None:
        if not self.readable:  # others have failed meanwhile
            return
        why = "no answer in time" if isinstance(error, TimeoutError) else str(error)
        log.warning("records come by value for %.0f s: the store: %s", self._pause_s, why)
        self._silent_until = asyncio.get_running_loop().time() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    async def _read(self, path: str, run: Sequence[Extent]) -> list[Buffer]:
        if not path.startswith(f"{FILES}/") or ".." in path:
            raise WrongObjectError(f"{path!r} is no file of a log")
        start = run[0].position
        size = run[-1].position + run[-1].length - start
        data = memoryview(await self._store.read(path, start, size))
        if len(data) < size:
            raise WrongObjectError(f"{path} ends before position {start + size}")
        return await asyncio.to_thread(_verified, path, run, data)


async def _in_parallel(reads: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of all reads. The first error ends the others."""
    tasks = [asyncio.ensure_future(read) for read in reads]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def _runs(extents: Sequence[Extent]) -> list[list[Extent]]:
    """Extents that are read together."""
    runs: list[list[Extent]] = []
    for extent in extents:
        if runs and _joins(runs[-1], extent):
            runs[-1].append(extent)
        else:
            runs.append([extent])
    return runs


def _joins(run: Sequence[Extent], extent: Extent) -> bool:
    end = run[-1].position + run[-1].length
    size = extent.position + extent.length - run[0].position
    return 0 <= extent.position - end <= _GAP and size <= _MOST_BYTES


def _verified(path: str, run: Sequence[Extent], data: memoryview) -> list[Buffer]:
    """The batches of a run. Raises WrongObjectError."""
    start = run[0].position
    found: list[Buffer] = []
    for extent in run:
        batch = data[extent.position - start : extent.position - start + extent.length]
        try:
            header = read_header(batch)
        except Malformed as e:
            raise WrongObjectError(f"{path} has no batch at {extent.position}: {e}") from e
        same = (header.base_offset, header.length) == (extent.base_offset, extent.length)
        if not same or header.crc != crc32c(batch[PATCHED_SIZE:]):
            raise WrongObjectError(f"{path} has another batch at {extent.position}")
        found.append(batch)
    return found
