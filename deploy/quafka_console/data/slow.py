"""Slow requests of gateways and slow ops of brokers, from their status pages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from quafka_console.data.status_pages import StatusPage, number, words

_TITLES = ("Slow requests", "Slow ops")


@dataclass(frozen=True, slots=True)
class ReportedRequest:
    """A request of a client, or an op of a gateway, that took long without its parked time.

    Attributes:
        ended: in seconds since 1970.
        seconds, parked_seconds: its duration without parked time, and the parked time.
        asker: the client's id, or the gateway's node id.
        trace_id: "" if it has no trace.
    """

    ended: float
    program: str
    page: str
    name: str
    asker: str
    address: str
    seconds: float
    parked_seconds: float
    errors: str
    trace_id: str


def slow_requests(pages: Iterable[StatusPage]) -> list[ReportedRequest]:
    """The last slow requests of these processes, the latest first."""
    found = [
        ReportedRequest(
            number(row, "ended") or 0.0,
            page.program,
            page.address,
            words(row, "API") or words(row, "op"),
            words(row, "client") or words(row, "gateway"),
            words(row, "address"),
            number(row, "took") or 0.0,
            number(row, "parked") or 0.0,
            words(row, "errors"),
            words(row, "trace"),
        )
        for page in pages
        for title in _TITLES
        for section in page.named(title)
        for row in section.rows
    ]
    return sorted(found, key=lambda each: -each.ended)
