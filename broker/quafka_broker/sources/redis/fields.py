"""The fields of an entry, and the key, value, headers and timestamp of a record.

| field | record |
| --- | --- |
| `key` | the key; without the field it is null |
| `value` | the value |
| `header.NAME`, `nullheader.NAME` | a header; a header whose value is null |
| `timestamp` | the timestamp, if it is a number of milliseconds; without it, that of the entry id |
| others, together with `value` | a header with the field's name each |
| others, without `value` | together, the value: a JSON object |

`format=json` puts all other fields and `value` into the JSON object; `format=raw` puts all fields
into the value, as the array of bulk strings that Redis sends (RESP 2). Fields may repeat and have
any bytes. The same entry always yields the same record.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from quafka_proto.record_codec import Record

VALUE = b"value"
_KEY, _TIMESTAMP = b"key", b"timestamp"
_HEADER, _NULL_HEADER = b"header.", b"nullheader."
_MILLISECONDS = re.compile(rb"[0-9]{1,18}")
_encode_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
MOST_HEADERS = 1_000
"""The maximum number of headers to write: a script has all fields of an entry on its stack."""


class Format(StrEnum):
    """How fields are converted to a value."""

    AUTO = "auto"
    JSON = "json"
    RAW = "raw"


Header = tuple[bytes, bytes | None]


PlainFields = tuple[bytes | None, bytes, tuple[()], int | None]


class Fields(NamedTuple):
    """The contents of a record without its offset. `timestamp`: None without a field for it."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    timestamp: int | None


def read_plain(flat: Sequence[bytes]) -> PlainFields | None:
    """A faster `read_fields` for the fields of most entries; None for others."""
    if len(flat) == 2:
        return (None, flat[1], (), None) if flat[0] == VALUE else None
    if len(flat) == 6 and flat[0] == _KEY and flat[2] == VALUE and flat[4] == _TIMESTAMP:
        time = flat[5]
        return (flat[1], flat[3], (), int(time)) if time.isdigit() and len(time) < 19 else None
    if len(flat) == 4 and flat[0] == VALUE and flat[2] == _TIMESTAMP:
        time = flat[3]
        return (None, flat[1], (), int(time)) if time.isdigit() and len(time) < 19 else None
    return None


def read_fields(flat: Sequence[bytes], format: Format) -> Fields:  # noqa: A002
    """Read a record from an entry's names and values, which alternate in `flat`."""
    if format is Format.RAW:
        return Fields(None, _as_resp(flat), (), None)
    key = value = timestamp = None
    headers: list[Header] = []
    others: list[tuple[bytes, bytes]] = []
    pairs = iter(flat)
    for name, content in zip(pairs, pairs, strict=False):
        if name == VALUE and value is None and format is Format.AUTO:
            value = content
        elif name == _KEY and key is None:
            key = content
        elif name == _TIMESTAMP and timestamp is None and _MILLISECONDS.fullmatch(content):
            timestamp = int(content)
        elif name.startswith(_HEADER):
            headers.append((name[len(_HEADER) :], content))
        elif name.startswith(_NULL_HEADER):
            headers.append((name[len(_NULL_HEADER) :], None))
        else:
            others.append((name, content))
    if others and value is None:
        value = _as_json(others)
    elif others:
        headers += others
    return Fields(key, value, headers, timestamp)


def write_fields(record: Record, *, timestamp: bool = True) -> list[bytes]:
    """Write the names and values of an entry that `read_fields` reads as this record.

    Without `timestamp`, the record's time is that of its entry id. An entry needs a field, so a
    record without key, value and headers always has its timestamp.

    Raises:
        ValueError: the record has too many headers.
    """
    if len(record.headers) > MOST_HEADERS:
        raise ValueError(f"{len(record.headers)} headers; at most {MOST_HEADERS} fit an entry")
    flat: list[bytes] = []
    if record.key is not None:
        flat += (_KEY, record.key)
    if record.value is not None:
        flat += (VALUE, record.value)
    for name, content in record.headers:
        prefix = _NULL_HEADER if content is None else _HEADER
        flat += (prefix + name.encode(), content or b"")
    if (timestamp and record.timestamp >= 0) or not flat:
        flat += (_TIMESTAMP, b"%d" % max(record.timestamp, 0))
    return flat


def _as_resp(flat: Sequence[bytes]) -> bytes:
    return b"".join([b"*%d\r\n" % len(flat), *(b"$%d\r\n%b\r\n" % (len(s), s) for s in flat)])


def _as_json(fields: Sequence[tuple[bytes, bytes]]) -> bytes:
    """A JSON object: text as strings, other bytes as {"base64": ...}, repeated fields as lists."""
    found: dict[str, list[object]] = {}
    for name, content in fields:
        found.setdefault(name.decode(errors="backslashreplace"), []).append(_json_value(content))
    plain = {name: each if len(each) > 1 else each[0] for name, each in found.items()}
    return _encode_json(plain).encode()


def _json_value(content: bytes) -> object:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}
