"""The object store of a log: requests and bytes by kind, and their costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from quafka_broker.chain.collect import Collected
from quafka_broker.chain.store_disk import DiskFigures
from quafka_mesh_ops.store_requests import request_families, request_table
from quafka_objects.costs import Estimate, Prices, estimate
from quafka_objects.meter import StoreMeter
from quafka_telemetry.metrics import SECONDS, Family, FamilyKind, gauge
from quafka_telemetry.status_page import Cell, Facts, Section, size, text


class LocalFigures(NamedTuple):
    """The local data and unneeded objects of one process, in bytes except for counts.

    Attributes:
        cache: the limit of the caches.
        unneeded: objects that are deleted after the grace period.
    """

    disk: DiskFigures = DiskFigures()
    cache: int = 0
    unneeded: Collected = Collected()


@dataclass(slots=True, eq=False)
class StoreFigures:
    """The use of the store by one process.

    Attributes:
        where: the store's URL.
        stored: the bytes of the objects that the log of this process needs.
        local: sums over the shards of this process.
    """

    where: str
    prices: Prices
    stored: Callable[[], int] = lambda: 0
    local: Callable[[], LocalFigures] = LocalFigures
    meter: StoreMeter = field(default_factory=lambda: StoreMeter(SECONDS))

    def estimate(self) -> Estimate:
        """The costs since the start, and for a month at the same rate."""
        return estimate(self.prices, self.meter.kinds, self.meter.age, self.stored())


def sum_of(figures: Sequence[LocalFigures]) -> LocalFigures:
    """The figures of all shards together."""
    if not figures:
        return LocalFigures()
    disks, caches, unneeded = zip(*figures, strict=True)
    return LocalFigures(
        DiskFigures(*map(sum, zip(*disks, strict=True))),
        sum(caches),
        Collected(*map(sum, zip(*unneeded, strict=True))),
    )


def store_families(figures: StoreFigures) -> Iterator[Family]:
    """The metrics."""
    yield from request_families(figures.meter)
    yield gauge("quafka_store_bytes", "Bytes in the store that the log needs", figures.stored())
    found = figures.estimate()
    yield Family(
        "quafka_store_dollars_month", FamilyKind.GAUGE,
        "Estimated dollars for a month of the use since the start, by the prices in store.prices",
        [(("requests",), found.requests_month), (("storage",), found.storage_month)], ("part",),
    )  # fmt: skip
    disk, cache, unneeded = figures.local()
    yield gauge(
        "quafka_store_uploads_waiting", "Files of sealed segments that are not objects yet",
        disk.waiting,
    )  # fmt: skip
    yield gauge("quafka_store_uploads_waiting_bytes", "Their bytes", disk.waiting_bytes)
    yield Family(
        "quafka_store_cache_bytes", FamilyKind.GAUGE, "Bytes of the local cache in use",
        [(("copies",), disk.copies), (("blocks",), disk.blocks)], ("part",),
    )  # fmt: skip
    yield gauge("quafka_store_cache_limit_bytes", "Bytes that the local cache may use", cache)
    yield gauge(
        "quafka_store_unneeded_objects", "Objects that are deleted after store.grace.ms",
        unneeded.objects,
    )  # fmt: skip
    yield gauge("quafka_store_unneeded_bytes", "Bytes of these objects", unneeded.bytes)


def store_sections(figures: StoreFigures) -> Iterator[Section]:
    """The sections of the status page."""
    found, (disk, cache, unneeded) = figures.estimate(), figures.local()
    yield Facts(
        "Object store",
        [
            ("store", text(figures.where)),
            ("bytes that the log needs", size(figures.stored())),
            ("bytes that wait to be uploaded", size(disk.waiting_bytes)),
            ("cache", text(f"{size(disk.copies + disk.blocks).text} of {size(cache).text}")),
            ("deleted after the grace period", size(unneeded.bytes)),
            ("prices", text(_in_words(figures.prices))),
            ("requests since the start", _dollars(found.requests)),
            (
                "for each GB written to the log",
                _dollars(found.per_gb, "not known before the first MB"),
            ),
            ("requests in a month of such use", _dollars(found.requests_month)),
            ("storage in a month", _dollars(found.storage_month)),
        ],
    )
    yield request_table(figures.meter)


def _in_words(prices: Prices) -> str:
    """The prices that are charged."""
    every = (
        (prices.put, "1,000 writes or lists"),
        (prices.get, "1,000 reads"),
        (prices.stored, "a GB stored for a month"),
        (prices.read, "a GB read"),
        (prices.written, "a GB written"),
    )
    return ", ".join(f"${price:,g} for {what}" for price, what in every if price) or "free"


def _dollars(value: float | None, unknown: str = "") -> Cell:
    """Dollars: with cents, or with four places if they are few."""
    if value is None:
        return Cell(unknown, numeric=True)
    return Cell(f"${value:,.2f}" if value >= 100 else f"${value:,.4f}", numeric=True)
