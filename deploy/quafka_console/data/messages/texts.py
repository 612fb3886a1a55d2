"""Keys, values and headers as texts. Pure, for any bytes."""

from __future__ import annotations

import json
from typing import Any

from quafka_console.data.messages.records import SHOWN_BYTES, KeptBytes

CUT = 200
"""Characters of a value in a list."""
_MOST_INDENTED = 8 * SHOWN_BYTES
"""Characters of indented JSON."""
_ROW = 16
_MOST_HEX = 4_096


def text_of(kept: KeptBytes | None) -> str:
    """UTF-8 as it is, other bytes as hex; cut for a list. Empty for null."""
    if kept is None:
        return ""
    data = kept.data
    try:
        text = data[: 4 * CUT].decode()
    except UnicodeDecodeError as e:
        if e.start < 4 * CUT - 4:
            return f"0x{data[:40].hex()}" + ("…" if kept.size > 40 else "")
        text = data[: e.start].decode()
    return text if len(text) <= CUT and kept.size <= 4 * CUT else f"{text[:CUT]}…"


def whole_of(kept: KeptBytes | None) -> str:
    """All that is kept: JSON indented, text, or hex; the size of all if it is cut.

    Takes some milliseconds.
    """
    if kept is None:
        return "(null)"
    data = kept.data
    try:
        text = data.decode()
    except UnicodeDecodeError as e:
        if kept.whole or e.start < len(data) - 4:
            return _hex(data[:_MOST_HEX]) + _more(kept, _MOST_HEX)
        text = data[: e.start].decode()
    parsed = json_of(data) if kept.whole else None
    if isinstance(parsed, dict | list):
        return _indented(parsed) or text
    return text + _more(kept, len(data))


def _indented(parsed: Any) -> str | None:
    """JSON indented; None: nested so deeply that indentation would multiply its size."""
    parts: list[str] = []
    size = 0
    try:
        for part in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(parsed):
            parts.append(part)
            size += len(part)
            if size > _MOST_INDENTED:
                return None
    except RecursionError:
        return None
    return "".join(parts)


def _more(kept: KeptBytes, shown: int) -> str:
    return f"\n… {kept.size:,} bytes in all" if kept.size > shown else ""


def json_of(data: bytes | None) -> Any:
    """The value as JSON; None: it is not JSON, or null."""
    if data is None or data[:1] not in (b"{", b"[", b'"'):
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _hex(data: bytes) -> str:
    """Offset, bytes and printable characters, sixteen to a line."""
    lines: list[str] = []
    for at in range(0, len(data), _ROW):
        row = data[at : at + _ROW]
        shown = "".join(chr(each) if 32 <= each < 127 else "." for each in row)
        lines.append(f"{at:06x}  {row.hex(' '):{3 * _ROW}}  {shown}")
    return "\n".join(lines)
