"""Keys, values and headers as texts; filters. Pure, for any bytes."""

from __future__ import annotations

import json
from typing import Any

from quafka_console.data.messages.reading import ReadRecord, Wanted

CUT = 200
"""Characters of a value in a list."""
_MOST = 64 << 10
"""Bytes of a value that are shown."""
_MOST_INDENTED = 8 * _MOST
"""Characters of indented JSON."""
_ROW = 16
_MOST_HEX = 4_096


def text_of(data: bytes | None) -> str:
    """UTF-8 as it is, other bytes as hex; cut for a list. Empty for null."""
    if data is None:
        return ""
    try:
        text = data[: 4 * CUT].decode()
    except UnicodeDecodeError as e:
        if e.start < 4 * CUT - 4:
            return f"0x{data[:40].hex()}" + ("…" if len(data) > 40 else "")
        text = data[: e.start].decode()
    return text if len(text) <= CUT and len(data) <= 4 * CUT else f"{text[:CUT]}…"


def whole_of(data: bytes | None) -> str:
    """The whole value: JSON indented, text, or hex; cut with the size shown."""
    if data is None:
        return "(null)"
    more = _more(data, _MOST)
    try:
        text = data[:_MOST].decode()
    except UnicodeDecodeError as e:
        if not more or e.start < _MOST - 4:
            return _hex(data[:_MOST_HEX]) + _more(data, _MOST_HEX)
        text = data[: e.start].decode()
    parsed = None if more else json_of(data)
    if isinstance(parsed, dict | list):
        return _indented(parsed) or text
    return text + more


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


def _more(data: bytes, most: int) -> str:
    return f"\n… {len(data):,} bytes in all" if len(data) > most else ""


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


def containing(words: str) -> Wanted:
    """Whether key, value or a header contains each of the words, exactly as they are written."""
    every = [word.encode() for word in words.split()]

    def wanted(record: ReadRecord) -> bool:
        parts = [record.key or b"", record.value or b""]
        for name, value in record.headers:
            parts += [name.encode(), value or b""]
        return all(any(word in part for part in parts) for word in every)

    return wanted
