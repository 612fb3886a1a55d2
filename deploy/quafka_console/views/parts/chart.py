"""Line charts over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from nicegui import ui

_COLOURS = ("#3b82f6", "#f59e0b", "#10b981", "#8b5cf6")
_SOFT = "#8a94a3"

Series = Sequence[tuple[float, float | None]]
"""Times in ms since 1970, and values; None: unknown."""


def line_chart(title: str, names: Sequence[str]) -> ui.echart:
    """An empty chart; the second series has an axis of its own."""
    axes: list[dict[str, Any]] = [
        {
            "type": "value", "min": 0,
            "position": "left" if at == 0 else "right", "splitLine": {"show": at == 0,
            "lineStyle": {"color": _SOFT, "opacity": 0.25}},
            "axisLabel": {"color": _COLOURS[at]},
        }
        for at in range(min(2, len(names)))
    ]  # fmt: skip
    return ui.echart(
        {
            "title": {"text": title, "left": 0, "textStyle": {"fontSize": 13, "color": _SOFT}},
            "animation": False,
            "backgroundColor": "transparent",
            "color": list(_COLOURS),
            "grid": {"left": 60, "right": 60, "top": 44, "bottom": 24},
            "legend": {"top": 0, "right": 0, "textStyle": {"color": _SOFT}},
            "tooltip": {"trigger": "axis"},
            "xAxis": {"type": "time", "axisLabel": {"color": _SOFT, "hideOverlap": True}},
            "yAxis": axes,
            "series": [
                {"name": name, "type": "line", "showSymbol": False, "data": [],
                 "yAxisIndex": min(at, 1)}
                for at, name in enumerate(names)
            ],
        }
    ).classes("w-full h-48")  # fmt: skip


def refill_chart(chart: ui.echart, series: Sequence[Series]) -> None:
    """Replace the values of all series."""
    options = cast("dict[str, Any]", chart.options)  # pyright: ignore[reportUnknownMemberType]
    for shown, values in zip(options["series"], series, strict=True):
        shown["data"] = [list(each) for each in values]
    chart.update()
