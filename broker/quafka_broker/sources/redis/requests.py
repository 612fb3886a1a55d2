"""The messages between the broker's loop and the connections to Redis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from quafka_broker.partitions.errors import StorageError
from quafka_broker.sources.redis.batches import EncodedRead, Encoder, Entry
from quafka_broker.sources.redis.bounds import StreamBounds
from quafka_broker.sources.redis.entry_ids import EntryId
from quafka_broker.sources.redis.fields import write_fields
from quafka_proto.message import Buffer
from quafka_proto.record_codec import iter_records

PRODUCERS = 5_000
"""The number of idempotent producers that each of a stream's two hashes remembers."""


Growth = EntryId | StreamBounds | StorageError
"""The news of a watched stream: a new entry, new bounds, or a failure."""


class Connected(NamedTuple):
    """The server behind a link. `role` and `version` are empty if Redis does not report them."""

    address: str
    role: str
    version: str


class ReadRequest(NamedTuple):
    """A read of a stream.

    Attributes:
        entries: the number of entries to request first.
        most: the maximum number of batches.
    """

    stream: bytes
    offset: int
    limit: int
    at_least_one: bool
    most: int
    entries: int
    leader_epoch: int
    encoder: Encoder


class ReadAnswer(NamedTuple):
    """The result of a read, and the bounds of the stream after it.

    Attributes:
        entry_size: the mean size of the entries in bytes; 0 without any.
        is_empty: the stream has no entry from the offset on.
    """

    encoded: EncodedRead
    bounds: StreamBounds
    entry_size: float
    is_empty: bool


class RedisProducer(NamedTuple):
    """An idempotent producer and the sequences of its batch. Empty `producer`: none."""

    producer: bytes = b""
    epoch: int = -1
    first: int = -1
    last: int = -1


@dataclass(frozen=True, slots=True)
class AppendRequest:
    """A batch for a stream: the keys and arguments of scripts.APPEND."""

    keys: tuple[bytes, bytes, bytes]
    arguments: list[bytes | int]
    replicas: int = 0


@dataclass(frozen=True, slots=True)
class ProducedBatch:
    """A checked record batch on its way to a stream.

    `append_time`: records get the time of their entries, not the producer's.
    """

    stream: bytes
    records: Buffer
    per_ms: int
    produced_by: RedisProducer
    expiry_ms: int
    append_time: bool
    replicas: int

    def request(self) -> AppendRequest:
        """The script's keys and arguments.

        Raises:
            ValueError: a record does not fit an entry.
        """
        arguments: list[bytes | int] = [
            self.per_ms, *self.produced_by, PRODUCERS, self.expiry_ms,
        ]  # fmt: skip
        for record in iter_records(self.records):
            fields = write_fields(record, timestamp=not self.append_time)
            arguments.append(len(fields))
            arguments += fields
        beside = b"quafka:{" + self.stream + b"}:producers"
        return AppendRequest((self.stream, beside, beside + b":before"), arguments, self.replicas)


class Appended(NamedTuple):
    """The script's result for a batch; see scripts.APPEND."""

    outcome: str
    detail: str


class ServerLink(Protocol):
    """The connections of a server; see link.Link. Its methods run in the worker."""

    async def connect(self) -> Connected: ...
    async def close(self) -> None: ...
    async def bounds(self, streams: Sequence[bytes]) -> list[StreamBounds | StorageError]: ...
    async def read(self, request: ReadRequest) -> ReadAnswer: ...
    async def entry_at(self, stream: bytes, start: bytes, *, last: bool) -> Entry | None: ...
    async def watch(self, streams: Mapping[bytes, EntryId]) -> dict[bytes, Growth]: ...
    async def unblock(self) -> None: ...
    async def append(self, batches: Sequence[AppendRequest]) -> list[Appended | StorageError]: ...


class ServerFigures:
    """Counters of one server, for metrics and the status page."""

    __slots__ = ("appends", "bytes_read", "entries_read", "failures", "last_failure", "reads")

    def __init__(self) -> None:
        self.reads = self.entries_read = self.bytes_read = self.appends = 0
        self.failures = 0
        self.last_failure = ""

    def count_failure(self, reason: str) -> None:
        """Count a failure of a command, or of an attempt to connect."""
        self.failures += 1
        self.last_failure = reason
