"""The cost of a store, from a table of prices. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quafka_objects.meter import RequestFigures

MONTH = 730 * 3_600.0
"""Seconds in a month, as providers count them."""
GB = 1e9
_WRITES = ("put", "create", "replace", "list")
_READS = ("get", "head")


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices in dollars; the defaults are those of S3 Standard in us-east-1 (2026).

    Attributes:
        put: 1,000 requests that write or list.
        get: 1,000 requests that read. Deletions are free everywhere.
        stored: a GB for a month.
        read: a GB that leaves the store. Within a provider's region it is usually free.
        written: a GB that enters the store; only express classes charge for it.
    """

    put: float = 0.005
    get: float = 0.0004
    stored: float = 0.023
    read: float = 0.0
    written: float = 0.0


def parse_prices(text: str) -> Prices:
    """Parse name=dollars, separated by commas; prices that are not named have their defaults.

    Raises:
        ValueError: a part has another form.
    """
    known = {field.name for field in fields(Prices)}
    found: dict[str, float] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, number = part.partition("=")
        value = float(number)
        if name not in known or name in found or not 0 <= value < 1e6:
            raise ValueError(part)
        found[name] = value
    return Prices(**found)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimated costs in dollars.

    Attributes:
        requests: the requests and the traffic counted so far.
        per_gb: the same for each GB of the log; None before the first thousandth of a GB.
        requests_month: the same for a month of such use.
        storage_month: the stored bytes for a month.
    """

    requests: float
    per_gb: float | None
    requests_month: float
    storage_month: float


def estimate(
    prices: Prices, kinds: Mapping[str, RequestFigures], seconds: float, stored: int
) -> Estimate:
    """The costs of the counts of `seconds`, and of the stored bytes."""
    writes = sum(kinds[kind].requests for kind in _WRITES)
    reads = sum(kinds[kind].requests for kind in _READS)
    put = sum(kinds[kind].bytes for kind in _WRITES) / GB
    got = sum(kinds[kind].bytes for kind in _READS) / GB
    cost = (
        (writes * prices.put + reads * prices.get) / 1_000
        + put * prices.written
        + got * prices.read
    )
    logged = kinds["create"].bytes / GB
    return Estimate(
        cost,
        cost / logged if logged >= 1e-3 else None,
        cost * MONTH / seconds if seconds > 0 else 0.0,
        stored / GB * prices.stored,
    )
