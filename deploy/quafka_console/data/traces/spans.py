"""Spans as the console keeps them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from sys import getsizeof
from typing import NamedTuple

_SPAN_BYTES = 800
"""Of a span, its numbers and its trace, if that has one span."""
_PLACE_BYTES = 200
_PARKS = (".park", "await_owner")


class TracedPlace(NamedTuple):
    """Records that a request wrote or returned. `first`, `last`: offsets; -1: no record."""

    topic: str
    partition: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class TraceSpan:
    """A span. Times in ns since 1970.

    Attributes:
        instance: the process that has recorded it.
        is_server, is_client: whether it is an end of a call between processes.
        links: ids of the traces that it links to.
        places: the partitions of its request, as far as they are named.
    """

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    service: str
    start: int
    end: int
    attributes: Mapping[str, str]
    failed: bool = False
    instance: str = ""
    is_server: bool = False
    is_client: bool = False
    links: Sequence[str] = ()
    places: Sequence[TracedPlace] = ()

    @property
    def is_wait(self) -> bool:
        """Whether it is the time that something waits for records, or for others."""
        return self.name.endswith(_PARKS)

    @property
    def seconds(self) -> float:
        """Its duration."""
        return max(0, self.end - self.start) / 1e9


def memory_of(span: TraceSpan) -> int:
    """The bytes that a span takes, its share of its trace included."""
    texts = (
        span.trace_id, span.span_id, span.parent_id, span.name, span.service, span.instance,
        *span.links, *(each.topic for each in span.places),
    )  # fmt: skip
    size = _SPAN_BYTES + getsizeof(span.attributes) + sum(map(getsizeof, texts))
    size += _PLACE_BYTES * len(span.places)
    return size + sum(getsizeof(k) + getsizeof(v) for k, v in span.attributes.items())
