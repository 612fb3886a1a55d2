"""Metrics as text: Prometheus' format 0.0.4, and OpenMetrics 1.0 for clients that ask for it.

`metrics_page` sends the lines while they are rendered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf, isfinite, nan

from quafka_telemetry.metrics import Family, FamilyKind, Histogram, Metrics
from quafka_telemetry.operations import Page, PageReply, PageRequest

_PLAIN = "text/plain; version=0.0.4; charset=utf-8"
_OPEN = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})


def metrics_page(metrics: Metrics, *, detail: bool = False) -> Page:
    """Make the operations port's page `/metrics`, or with `detail` the page `/metrics/detail`."""

    async def page(asked: PageRequest) -> PageReply:
        openmetrics = prefers_openmetrics(asked.accept)
        lines = render(await metrics.read(detail=detail), openmetrics=openmetrics)
        body = (line.encode() for line in lines)
        return PageReply(body, _OPEN if openmetrics else _PLAIN)

    return page


def render(families: Iterable[Family], *, openmetrics: bool = False) -> Iterator[str]:
    """Yield the text, line by line."""
    for family in families:
        counter = family.kind is FamilyKind.COUNTER
        name = f"{family.name}_total" if counter else family.name
        about = family.name if openmetrics else name
        help_ = family.help.translate(_ESCAPES if openmetrics else _HELP_ESCAPES)
        yield f"# HELP {about} {help_}\n# TYPE {about} {family.kind}\n"
        pattern = ",".join(f'{label}="%s"' for label in family.labels)
        for values, value in family.samples:
            labels = pattern % tuple(map(_escaped, values)) if values else ""
            if isinstance(value, Histogram):
                yield from _histogram(name, labels, value)
            elif labels:
                yield f"{name}{{{labels}}} {number(value)}\n"
            else:
                yield f"{name} {number(value)}\n"
    if openmetrics:
        yield "# EOF\n"


def _histogram(name: str, labels: str, histogram: Histogram) -> Iterator[str]:
    before = f"{labels}," if labels else ""
    bounds = (*map(number, map(float, histogram.bounds)), "+Inf")
    count = 0
    for bound, count in zip(bounds, histogram.cumulative(), strict=True):
        yield f'{name}_bucket{{{before}le="{bound}"}} {count}\n'
    whole = f"{{{labels}}}" if labels else ""
    yield f"{name}_sum{whole} {number(histogram.sum)}\n{name}_count{whole} {count}\n"


def number(value: float) -> str:
    """Format a number as both formats require."""
    if isfinite(value):
        return repr(value)
    return "NaN" if value != value else "+Inf" if value == inf else "-Inf"


def _escaped(value: str) -> str:
    # Few values need escaping, and the check is cheaper than translate().
    if '"' in value or "\\" in value or "\n" in value:
        return value.translate(_ESCAPES)
    return value


def prefers_openmetrics(accept: str) -> bool:
    """Whether an Accept header prefers OpenMetrics to plain text."""
    best = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for choice in accept.split(","):
        kind, *parameters = (part.strip() for part in choice.lower().split(";"))
        quality = next((p[2:] for p in parameters if p.startswith("q=")), "1")
        if kind in best:
            best[kind] = max(best[kind], _quality(quality))
    return best["application/openmetrics-text"] > best["text/plain"]


def _quality(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = nan
    return value if 0 <= value <= 1 else 0.0
