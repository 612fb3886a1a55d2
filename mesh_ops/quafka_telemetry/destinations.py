"""The topics and partitions of a request, as attributes and events of its span."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, zip_longest
from typing import Protocol

from quafka_telemetry import semconv
from quafka_telemetry.tracing import Attributes, Span

MAX_PARTITION_EVENTS = 16
"""Partitions of one request that get an event; the others are only counted."""
MAX_COMPARED = 1_000
"""Partitions of one request that are looked at: a request for more names no topic on its span."""

Destination = tuple[str, bytes, int]
"""The topic's name ("": unknown), its id (empty or zero: unknown), and the partition."""

OffsetRange = tuple[int, int]
"""The offsets of the first and the last record."""


class NamedPartition(Protocol):
    """A partition of an op, named by the topic's name or, if that is empty, by `topic_id`.

    Not every op can name topics by id.
    """

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...


def topic_id_of(partition: NamedPartition) -> bytes:
    """The id that names the topic; empty: none does."""
    found: bytes = getattr(partition, "topic_id", b"")
    return found


def describe_destinations(
    span: Span, destinations: Iterable[Destination], offsets: Iterable[OffsetRange | None] = ()
) -> None:
    """Name the topic that all partitions share, and each partition: several are events.

    Only for sampled spans: others need no names.

    Args:
        offsets: what was written to or read from each partition, if anything was; these partitions
            have the first events.
    """
    partitions = list(islice(destinations, MAX_COMPARED + 1))
    if not partitions:
        return
    ranges = list(islice(offsets, len(partitions)))
    if len(partitions) == 1:
        span.set(_attributes(partitions[0], ranges[0] if ranges else None))
        return
    name, topic_id, _ = partitions[0]
    if len(partitions) <= MAX_COMPARED and all(each[:2] == (name, topic_id) for each in partitions):
        span.set(_topic(name, topic_id))
    for each, its in _with_offsets_first(partitions, ranges):
        span.event(semconv.PARTITION, _attributes(each, its))


def _with_offsets_first(
    partitions: Sequence[Destination], ranges: Sequence[OffsetRange | None]
) -> Iterator[tuple[Destination, OffsetRange | None]]:
    pairs = list(zip_longest(partitions, ranges))
    ordered = chain((each for each in pairs if each[1]), (each for each in pairs if not each[1]))
    return islice(ordered, MAX_PARTITION_EVENTS)


def _attributes(partition: Destination, offsets: OffsetRange | None) -> Attributes:
    name, topic_id, index = partition
    its = (
        {} if offsets is None
        else {semconv.BASE_OFFSET: offsets[0], semconv.LAST_OFFSET: offsets[1]}
    )  # fmt: skip
    return {**_topic(name, topic_id), semconv.PARTITION_ID: str(index), **its}


def _topic(name: str, topic_id: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    if name:
        found[semconv.DESTINATION] = name
    if any(topic_id):
        found[semconv.TOPIC_ID] = urlsafe_b64encode(topic_id).decode().rstrip("=")
    return found
