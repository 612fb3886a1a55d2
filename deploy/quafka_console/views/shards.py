"""Brokers and shards: who owns what, and what moves."""

from __future__ import annotations

from nicegui import ui

from quafka_console.data.shards import ReachedBroker, SeenShard, broker_links, shards
from quafka_console.data.status_reader import StatusPages
from quafka_console.session import ConsoleSession, ForOperatorsError, Query
from quafka_console.views.parts import formats, states
from quafka_console.views.parts.live import LivePart
from quafka_console.views.parts.operations import status_pages_of, status_problems
from quafka_console.views.parts.table import Column, Shown, table

PATH = "/shards"
_LINKS = (
    Column("address", "Broker", wide=True),
    Column("shard", "Shard", numeric=True),
    Column("state", "State"),
    Column("op", "An op takes", numeric=True),
    Column("rtt", "Round trip", numeric=True),
    Column("lost", "Packets lost", numeric=True),
    Column("open", "Open transactions", numeric=True),
    Column("version", "Version"),
)
_SHARDS = (
    Column("shard", "Shard", numeric=True),
    Column("owner", "Owner", wide=True),
    Column("epoch", "Owners so far", numeric=True),
    Column("lease", "Lease left", numeric=True),
    Column("moves", "Moves to"),
    Column("problem", "Problem", wide=True),
)
_Found = tuple[list[ReachedBroker] | None, StatusPages | None]
"""Brokers, and what their status pages say, if the person is an operator."""


async def show(session: ConsoleSession, _query: Query) -> None:
    """Build the page."""

    async def read() -> _Found:
        links = await broker_links(session.cluster)
        try:
            return links, await status_pages_of(session)
        except ForOperatorsError:
            return links, None

    await LivePart(read, _fill).start()


def _fill(found: _Found) -> None:
    links, read = found
    ui.label("Brokers, as the gateway reaches them").classes("q-heading")
    if not links:
        states.empty("No brokers", "The server is not a Quafka gateway, or knows no broker.")
    else:
        table(_LINKS, [_link(each) for each in links])
    if read is None:
        return
    owned = shards(read.pages)
    ui.label("Shards").classes("q-heading")
    if owned:
        moving = sum(bool(each.moves_to) for each in owned)
        if moving:
            ui.label(f"{moving:,} of {len(owned):,} shards move to another broker").classes(
                "q-soft"
            )
        table(_SHARDS, [_shard(each) for each in owned])
    elif any(page.program == "broker" for page in read.pages):
        states.empty(
            "The log has no shards", "A log in an object store is divided into shards that move."
        )
    status_problems(read)


def _link(each: ReachedBroker) -> list[str | Shown]:
    state = "connected" if each.connected else f"away for {formats.duration(each.away_seconds)}"
    return [
        formats.shown(each.address),
        "" if each.shard is None else str(each.shard),
        Shown(formats.shown(each.problem or state), bad=bool(each.problem) or not each.connected),
        formats.duration(each.op_seconds),
        formats.duration(each.round_trip_seconds),
        f"{each.lost:.2%}",
        formats.number(each.open_transactions),
        formats.shown(each.version, 24),
    ]


def _shard(each: SeenShard) -> list[str | Shown]:
    return [
        str(each.number),
        Shown(formats.shown(each.owner) or "nobody", bad=not each.owner),
        formats.number(each.epoch),
        "" if each.lease_seconds is None else formats.duration(max(0.0, each.lease_seconds)),
        formats.shown(each.moves_to),
        Shown(formats.shown(each.problem), bad=bool(each.problem)),
    ]
