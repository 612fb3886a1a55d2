"""Numbers, sizes, durations and texts as people read them. Pure."""

from __future__ import annotations

import time
import unicodedata

NOTHING = "–"
_LONGEST = 200


def number(value: float | None) -> str:
    """A whole number with separators: 12,345."""
    return NOTHING if value is None else f"{value:,.0f}"


def size(value: float | None) -> str:
    """Bytes in a suitable unit: 1.5 MiB."""
    if value is None:
        return NOTHING
    if value < 1024:
        return f"{value:,.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if value < 1024:
            return f"{value:,.1f} {unit}"
    return f"{value / 1024:,.1f} TiB"


def duration(seconds: float | None) -> str:
    """A duration in suitable units: 250 µs, 1.5 s, 3 min 20 s, 2 h 5 min, 4 days."""
    if seconds is None:
        return NOTHING
    if seconds == 0:
        return "0 s"
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    for limit, large, word, small, part in (
        (3_600, 60, "min", 1, "s"), (86_400, 3_600, "h", 60, "min"),
    ):  # fmt: skip
        if whole < limit:
            rest = whole % large // small
            return f"{whole // large} {word}" + (f" {rest} {part}" if rest else "")
    return f"{whole / 86_400:,.1f} days"


def utc(unix: float) -> str:
    """An exact time: 2026-11-28 06:15:00.250 UTC."""
    whole, rest = divmod(unix, 1)
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(whole)) + f".{int(rest * 1000):03} UTC"


def shown(text: str, longest: int = _LONGEST) -> str:
    """A text from the cluster: control and format characters as visible escapes, cut when long."""
    cut = text if len(text) <= longest else text[: longest - 1] + "…"
    return "".join(
        each if unicodedata.category(each) not in ("Cc", "Cf", "Cs", "Co") else _escaped(each)
        for each in cut
    )


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
