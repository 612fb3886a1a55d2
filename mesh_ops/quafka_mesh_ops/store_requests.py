"""Requests to an object store by kind, as metrics and on the status page; of both programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from quafka_objects.meter import RequestFigures, StoreMeter
from quafka_telemetry.metrics import SECONDS, Family, FamilyKind, Histogram
from quafka_telemetry.status_page import Cell, PageTable, count, duration, size, text


def request_families(meter: StoreMeter) -> Iterator[Family]:
    """The metrics."""
    kinds = meter.kinds.items()
    for name, words, value in _COUNTS:
        yield Family(
            f"quafka_store_{name}", FamilyKind.COUNTER, words,
            [((kind,), value(one)) for kind, one in kinds], ("kind",),
        )  # fmt: skip
    yield Family(
        "quafka_store_seconds", FamilyKind.HISTOGRAM, "Durations of calls of the object store",
        [((kind,), histogram(one)) for kind, one in kinds], ("kind",),
    )  # fmt: skip


def request_table(meter: StoreMeter) -> PageTable:
    """The table on the status page."""
    return PageTable(
        "Requests to the object store",
        ("kind", "requests", "bytes", "refused", "repeatable failures", "other failures", "median",
         "99 %"),
        (_of_kind(kind, one) for kind, one in meter.kinds.items() if any(one.buckets)),
        "none yet",
    )  # fmt: skip


def _of_kind(kind: str, one: RequestFigures) -> tuple[Cell, ...]:
    seconds = histogram(one)
    return (
        text(kind),
        count(one.requests),
        size(one.bytes),
        count(one.refused),
        count(one.transient),
        count(one.failed, bad=one.failed > 0),
        duration(seconds.quantile(0.5)),
        duration(seconds.quantile(0.99)),
    )


def histogram(one: RequestFigures) -> Histogram:
    """The durations of calls, as the metrics have them."""
    found = Histogram(SECONDS)
    found.counts, found.sum = list(one.buckets), one.seconds
    return found


_COUNTS: tuple[tuple[str, str, Callable[[RequestFigures], int]], ...] = (
    ("requests", "Requests to the object store", lambda one: one.requests),
    ("transferred_bytes", "Bytes of objects sent and received", lambda one: one.bytes),
    ("refusals", "Requests whose answer was: exists, changed, not found", lambda one: one.refused),
    ("transient_failures", "Requests throttled, failed or unanswered", lambda one: one.transient),
    ("failures", "Requests that no repetition can help", lambda one: one.failed),
)
