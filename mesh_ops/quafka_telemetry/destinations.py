"""The topics and partitions of a request, as attributes and events of its span."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterable
from itertools import islice
from typing import Protocol

from quafka_telemetry import semconv
from quafka_telemetry.tracing import Attributes, Span

MAX_PARTITION_EVENTS = 16
"""Partitions of one request that get an event; the others are only counted."""
MAX_COMPARED = 1_000
"""Partitions of one request that are looked at: a request for more names no topic on its span."""

Destination = tuple[str, bytes, int]
"""The topic's name ("": unknown), its id (empty or zero: unknown), and the partition."""


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


def describe_destinations(span: Span, destinations: Iterable[Destination]) -> None:
    """Name the topic that all partitions share, and each partition: several are events.

    Only for sampled spans: others need no names.
    """
    partitions = list(islice(destinations, MAX_COMPARED + 1))
    if not partitions:
        return
    if len(partitions) == 1:
        span.set(_attributes(partitions[0]))
        return
    name, topic_id, _ = partitions[0]
    if len(partitions) <= MAX_COMPARED and all(each[:2] == (name, topic_id) for each in partitions):
        span.set(_topic(name, topic_id))
    for each in partitions[:MAX_PARTITION_EVENTS]:
        span.event(semconv.PARTITION, _attributes(each))


def _attributes(partition: Destination) -> Attributes:
    name, topic_id, index = partition
    return {**_topic(name, topic_id), semconv.PARTITION_ID: str(index)}


def _topic(name: str, topic_id: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    if name:
        found[semconv.DESTINATION] = name
    if any(topic_id):
        found[semconv.TOPIC_ID] = urlsafe_b64encode(topic_id).decode().rstrip("=")
    return found
