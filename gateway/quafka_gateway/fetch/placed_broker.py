"""A broker that is read by place: its answers name batches in files or objects, read here.

A broker on this host hands over its files; objects of the brokers' store are read from anywhere.

Large batches stay in their files until the response is sent. Small ones are read at once, a run of
neighbours with one call: to send each by itself would cost more than to copy it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from quafka_gateway.fetch.broker_files import BrokerFiles
from quafka_gateway.fetch.file_slice import FileSlice, LogFile, ShortFileError, as_batches
from quafka_gateway.fetch.lease import LeaseGrantor
from quafka_gateway.fetch.store_objects import StoreObjects
from quafka_mesh_ops.errors import ProtocolError
from quafka_mesh_ops.ops.base import Buffer
from quafka_mesh_ops.ops.leases import HoldLease, HoldLeaseResp
from quafka_mesh_ops.ops.places import Extent, ObjectPlace, unpack_extents
from quafka_mesh_ops.ops.records import FetchOpResp, FetchOps, FetchOpsResp
from quafka_telemetry.tracing import TraceContext

SMALL = 32 << 10
"""Batches below this size, on average, are copied; the others are sent by the kernel."""
_LEAST = 64 << 10  # the broker answers smaller fetches by value
_INLINE = 1 << 20  # bytes that are read on the event loop
_GAP = 1 << 10  # between neighbours are entry headers


class FetchedBroker(LeaseGrantor, Protocol):
    """The broker behind the mesh."""

    async def fetch(self, op: FetchOps, trace: TraceContext | None) -> FetchOpsResp:
        """Never raises: errors are in the answers."""
        ...


class PlacedBroker:
    """Fetches by place where possible. Its answers look like those by value."""

    def __init__(
        self,
        broker: FetchedBroker,
        files: BrokerFiles | None,
        objects: StoreObjects | None = None,
    ) -> None:
        self._broker = broker
        self._files = files
        self._objects = objects
        self.bytes_by_place = self.bytes_by_value = 0
        """Bytes of batches in the broker's answers."""
        self.missed = 0
        """Answers by place whose files or objects were not there: fetched again, by value."""

    async def hold_lease(self, op: HoldLease) -> HoldLeaseResp:
        """See LeaseGrantor."""
        return await self._broker.hold_lease(op)

    async def fetch(self, op: FetchOps, trace: TraceContext | None) -> FetchOpsResp:
        """Never raises: errors are in the answers."""
        asking = self._with_places(op) if op.max_bytes >= _LEAST else op
        answer = await self._broker.fetch(asking, trace)
        if not any(part.places for part in answer.partitions):
            return self._counted(answer)
        try:
            parts = [await self._found(part) if part.places else part for part in answer.partitions]
        except (ProtocolError, OSError):
            self.missed += 1
            return self._counted(await self._broker.fetch(op, trace))
        return self._counted(replace(answer, partitions=parts))

    def _with_places(self, op: FetchOps) -> FetchOps:
        """The op, so that it takes places where this gateway can read them."""
        if self._objects is not None and self._objects.readable:
            return replace(op, objects=True)
        number = self._files.connection() if self._files is not None else 0
        return replace(op, places=number) if number else op

    async def _found(self, part: FetchOpResp) -> FetchOpResp:
        """The answer with its batches.

        Raises:
            ProtocolError: the places cannot be read.
            OSError: a file or object is not here, or is not as the broker says.
        """
        places = part.places or ()
        batches: list[Buffer] = []
        if self._objects is not None and all(place.is_in_store for place in places):
            batches = await self._objects.batches(places)
        elif self._files is not None:
            for place in places:
                batches += await _batches(self._files, place)
        return replace(part, records=batches)

    def _counted(self, answer: FetchOpsResp) -> FetchOpsResp:
        for part in answer.partitions:
            if part.places:
                self.bytes_by_place += sum(map(len, part.records))
            elif part.records:
                self.bytes_by_value += sum(map(len, part.records))
        return answer


async def _batches(files: BrokerFiles, place: ObjectPlace) -> list[Buffer]:
    file = await files.find(place.key)
    if file is None:
        raise ShortFileError(f"{place.key} was withdrawn")
    extents = unpack_extents(place.extents)
    size = sum(extent.length for extent in extents)
    first, last = extents[0], extents[-1]
    span = last.position + last.length - first.position
    if size >= SMALL * len(extents) or not size <= span <= size + _GAP * len(extents):
        return as_batches([_slice(file, extent) for extent in extents])
    return await _read(file, extents, first.position, span)


def _slice(file: LogFile, extent: Extent) -> FileSlice:
    return FileSlice(file, extent.position, extent.length, extent.base_offset, extent.end_offset)


async def _read(file: LogFile, extents: Sequence[Extent], start: int, size: int) -> list[Buffer]:
    """The bytes of neighbours. Raises OSError."""
    data: Buffer | None = file.read_cached(start, size) if size <= _INLINE else None
    if data is None:
        data = await asyncio.to_thread(file.read, start, size)
    view = memoryview(data)
    return [
        view[extent.position - start : extent.position - start + extent.length]
        for extent in extents
    ]
