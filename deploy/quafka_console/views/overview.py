"""The first page: what needs attention, the health of each process, and the last hour."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from nicegui import ui

from quafka_client.checks.findings import Finding
from quafka_client.errors import ClientError
from quafka_client.groups import GroupSummary
from quafka_console.data.findings import Findings
from quafka_console.data.history import Sample
from quafka_console.data.status_pages import StatusPage
from quafka_console.data.status_reader import StatusPages
from quafka_console.session import ConsoleSession, ForOperatorsError, Query
from quafka_console.views.parts import address, formats, lags, states
from quafka_console.views.parts.chart import line_chart, refill_chart
from quafka_console.views.parts.live import LivePart, keep_refreshing
from quafka_console.views.parts.operations import no_operations_port, status_pages_of
from quafka_console.views.parts.table import Column, Shown, table

PATH = "/"
_REFRESH_SECONDS = 5.0
_SHOWN = 8
_PROCESSES = (
    Column("program", "Process"),
    Column("address", "Operations port", wide=True),
    Column("state", "State", wide=True),
    Column("version", "Version"),
    Column("running", "Running for", numeric=True),
    Column("memory", "Memory", numeric=True),
)
_GROUPS = (
    Column("group", "Group", wide=True),
    Column("state", "State"),
    Column("members", "Members", numeric=True),
    Column("lag", "Lag, records", numeric=True),
    Column("behind", "Behind", numeric=True),
)
_PAGES = {
    "broker": ("Brokers", "/shards"),
    "clock": ("Brokers", "/shards"),
    "compaction": ("Topics", "/topics"),
    "authorizer": ("ACLs", "/acls"),
    "groups": ("Groups", "/groups?order=lag"),
    "kafka folders": ("Brokers", "/shards"),
    "mesh": ("Brokers", "/shards"),
    "redis": ("Brokers", "/shards"),
    "snapshots": ("Snapshots", "/snapshots"),
    "transactions": ("Transactions", "/transactions"),
    "users": ("Users", "/users"),
    "version": ("Brokers", "/shards"),
}
"""The pages that show more about the findings of a check."""
_FINDINGS = Findings()


async def show(session: ConsoleSession, _query: Query) -> None:
    """Build the page. What asks about groups and topics is read after the rest."""

    async def processes() -> StatusPages | None:
        try:
            return await status_pages_of(session)
        except ForOperatorsError:
            return None

    async def attention() -> tuple[StatusPages | None, Sequence[Finding], str]:
        _, problem = await _lagging(session)
        return await processes(), await _FINDINGS.read(session.cluster), problem

    async def lagging() -> Sequence[GroupSummary]:
        return (await _lagging(session))[0]

    first = LivePart(attention, lambda found: _attention(*found))
    await LivePart(processes, _processes).start()
    LivePart(lagging, _lagging_groups).start_later()
    first.start_later()
    with suppress(ForOperatorsError):
        await session.check_operator()
        ui.label("The last hour, at all gateways").classes("q-heading")
        ui.label("From the start of the console on, a point every five seconds").classes("q-soft")
        _charts(session)


async def _lagging(session: ConsoleSession) -> tuple[list[GroupSummary], str]:
    """The groups that are behind most, and why they are not known."""
    try:
        known = await lags.all_lags(session)
    except ClientError as e:
        return [], str(e)
    found = [each.summary for each in known.lags or () if each.summary.lag]
    return sorted(found, key=lambda each: -(each.lag or 0))[:_SHOWN], ""


def _processes(read: StatusPages | None) -> None:
    if read is not None:
        ui.label("Processes").classes("q-heading")
        if read.pages:
            table(_PROCESSES, [_process(each) for each in read.pages])
        elif not read.problems:
            no_operations_port()


def _lagging_groups(lagging: Sequence[GroupSummary]) -> None:
    if lagging:
        ui.label("Groups that are behind").classes("q-heading")
        table(_GROUPS, [_group(each) for each in lagging])


def _attention(read: StatusPages | None, findings: Sequence[Finding], problem: str) -> None:
    """What needs attention first; one calm line if nothing does."""
    processes = StatusPages([], {}) if read is None else read
    sentences = [*processes.problems.values(), *([problem] if problem else [])]
    sentences += [
        f"{page.program} at {page.address}: {why}"
        for page in processes.pages
        for why in page.problems.values()
    ]
    problems = [*(Finding("", "fail", sentence) for sentence in sentences), *findings]
    for each in problems[:_SHOWN]:
        states.problem(each.message, each.fix or "", _PAGES.get(each.check))
    if len(problems) > _SHOWN:
        ui.label(f"and {len(problems) - _SHOWN:,} more").classes("q-soft")
    if not problems:
        with ui.row().classes("q-well items-center gap-2"):
            ui.icon("check_circle").props("aria-hidden=true")
            ui.label("Nothing needs attention")


def _process(page: StatusPage) -> list[str | Shown]:
    facts = {name: value for each in page.named("Process") for name, value in each.facts.items()}
    why = "; ".join(page.problems.values())
    memory, running = facts.get("memory"), facts.get("running for")
    return [
        page.program,
        Shown(formats.shown(page.address), href=f"{page.address}/statusz"),
        Shown("ready" if page.ready else formats.shown(why) or "not ready", bad=not page.ready),
        formats.shown(str(facts.get("version") or formats.NOTHING)),
        formats.duration(running if isinstance(running, float | int) else None),
        formats.size(memory if isinstance(memory, float | int) else None),
    ]


def _group(group: GroupSummary) -> list[str | Shown]:
    return [
        Shown(formats.shown(group.group), href=address.link("/group", name=group.group)),
        group.state,
        formats.number(group.members),
        Shown(formats.number(group.lag), bad=not group.members),
        formats.duration(group.behind_seconds),
    ]


def _charts(session: ConsoleSession) -> None:
    history = session.rates.history
    with ui.element("div").classes("q-charts w-full"):
        charts = [
            _chart("Requests per second", ("answered", "with errors")),
            _chart("MiB per second", ("received", "sent")),
            _chart("Latency in ms, without waiting for records", ("median", "99 %")),
        ]

    def refill() -> None:
        samples = list(history.samples)
        for chart, values in zip(charts, (_requests, _bytes, _latency), strict=True):
            pairs = [values(each) for each in samples]
            times = [each.at * 1_000 for each in samples]
            refill_chart(
                chart,
                [
                    [(at, pair[number]) for at, pair in zip(times, pairs, strict=True)]
                    for number in range(2)
                ],
            )

    async def refresh() -> None:
        with suppress(ClientError):
            await session.check_operator()
            refill()

    refill()
    keep_refreshing(refresh, _REFRESH_SECONDS)


def _chart(title: str, names: Sequence[str]) -> ui.echart:
    """A chart whose lines share an axis."""
    with ui.column().classes("q-chart gap-0"):
        ui.label(title).classes("q-soft")
        chart = line_chart("", names)
    options: dict[str, Any] = chart.options  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    axis: dict[str, Any] = options["yAxis"][0]
    axis["name"] = ""
    options["yAxis"] = [axis]
    options["grid"] = {"left": 48, "right": 12, "top": 30, "bottom": 24}
    for series in options["series"]:
        series["yAxisIndex"] = 0
    return chart


def _requests(sample: Sample) -> tuple[float | None, float | None]:
    return round(sample.requests, 1), round(sample.errors, 1)


def _bytes(sample: Sample) -> tuple[float | None, float | None]:
    return round(sample.received / (1 << 20), 3), round(sample.sent / (1 << 20), 3)


def _latency(sample: Sample) -> tuple[float | None, float | None]:
    return _ms(sample.p50), _ms(sample.p99)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1_000, 2)
