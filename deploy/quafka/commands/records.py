"""The text forms of records: templates, and one JSON object per line, which can be read back.

    {"topic": "orders", "partition": 0, "offset": 7, "timestamp": 1767225600000, "key": "k",
     "value": "v", "headers": [{"key": "source", "value": "shop"}]}

Data that is not UTF-8 is in `key_base64` or `value_base64`; `key` or `value` is then null. Data
in hex is in `key_hex` or `value_hex`.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from quafka.commands.forms import RAW, RecordForm, json_line

Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True)
class ConsoleRecord:
    """A record, read or to be written. `timestamp`, `partition`, `offset`: -1 if not set."""

    topic: str
    partition: int = -1
    offset: int = -1
    timestamp: int = -1
    key: bytes | None = None
    value: bytes | None = None
    headers: list[Header] = field(default_factory=list[Header])


# --- templates --------------------------------------------------------------------------------

_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_TOKEN = re.compile(r"%(.)|\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)

_SHOWN: dict[str, Callable[[ConsoleRecord], bytes]] = {
    "t": lambda r: r.topic.encode(),
    "p": lambda r: b"%d" % r.partition,
    "o": lambda r: b"%d" % r.offset,
    "T": lambda r: b"%d" % r.timestamp,
    "K": lambda r: b"%d" % (-1 if r.key is None else len(r.key)),
    "S": lambda r: b"%d" % (-1 if r.value is None else len(r.value)),
    "h": lambda r: b",".join(
        name.encode() + (b"" if value is None else b"=" + value) for name, value in r.headers
    ),
}


def template(
    text: str, key: RecordForm = RAW, value: RecordForm = RAW
) -> Callable[[ConsoleRecord], bytes]:
    """Compile a template of kcat's tokens: %s is the value, and so on.

    `key`, `value`: how they are shown.

    Raises:
        ValueError: an unknown token or escape.
    """
    parts: list[bytes | Callable[[ConsoleRecord], bytes]] = []
    shown: dict[str, Callable[[ConsoleRecord], bytes]] = {
        **_SHOWN,
        "k": lambda r: b"" if r.key is None else key.text(r.key),
        "s": lambda r: b"" if r.value is None else value.text(r.value),
    }
    at = 0
    for token in _TOKEN.finditer(text):
        parts.append(text[at : token.start()].encode())
        parts.append(_part(token, shown))
        at = token.end()
    rest = text[at:]
    if rest.endswith(("%", "\\")):
        raise ValueError(f"{text!r} ends in the middle of a token")
    parts.append(rest.encode())

    def show(record: ConsoleRecord) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(record) for part in parts)

    return show


def _part(
    token: re.Match[str], shown: Mapping[str, Callable[[ConsoleRecord], bytes]]
) -> bytes | Callable[[ConsoleRecord], bytes]:
    what, escape = token.groups()
    if what == "%":
        return b"%"
    if what is not None:
        if what not in shown:
            known = " ".join(f"%{each}" for each in shown)
            raise ValueError(f"%{what} is not a token; the tokens are {known} %%")
        return shown[what]
    if len(escape) == 3:
        return bytes.fromhex(escape[1:])
    if escape not in _ESCAPES:
        raise ValueError(f"\\{escape} is not an escape; the escapes are \\n \\t \\r \\0 \\\\ \\xNN")
    return _ESCAPES[escape]


# --- JSON -------------------------------------------------------------------------------------


def as_line(record: ConsoleRecord, key: RecordForm = RAW, value: RecordForm = RAW) -> bytes:
    """A record as one JSON object and a line feed; `key`, `value`: how they are shown."""
    shown = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **_fields("key", record.key, key),
        **_fields("value", record.value, value),
        "headers": [{"key": name, **_fields("value", data, RAW)} for name, data in record.headers],
    }
    return json_line(shown) + b"\n"


def _fields(name: str, data: bytes | None, form: RecordForm) -> dict[str, Any]:
    return {name: None} if data is None else form.fields(name, data)


def from_line(line: bytes, topic: str) -> ConsoleRecord:
    """Read a record from a line of `as_line`; `topic` replaces the topic in the line.

    Raises:
        ValueError: the line is malformed; the message is one sentence.
    """
    try:
        shown: Any = json.loads(line)
    except (ValueError, RecursionError) as e:
        raise ValueError(f"not JSON: {e}") from e
    if not isinstance(shown, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - of the text, not of a type
    record = cast("dict[str, Any]", shown)
    timestamp: Any = record.get("timestamp", -1)
    if type(timestamp) is not int:
        raise ValueError("timestamp is not a number of milliseconds")
    headers: Any = record.get("headers") or []
    if not isinstance(headers, list) or not all(
        isinstance(each, dict) and isinstance(cast("dict[str, Any]", each).get("key"), str)
        for each in cast("list[Any]", headers)
    ):
        raise ValueError('headers is not a list of {"key": ..., "value": ...}')
    return ConsoleRecord(
        topic,
        timestamp=timestamp,
        key=_data(record, "key"),
        value=_data(record, "value"),
        headers=[
            (each["key"], _data(each, "value")) for each in cast("list[dict[str, Any]]", headers)
        ],
    )


def _data(shown: dict[str, Any], name: str) -> bytes | None:
    encoded, text = shown.get(f"{name}_base64"), shown.get(name)
    digits = shown.get(f"{name}_hex")
    if isinstance(digits, str):
        try:
            return bytes.fromhex(digits)
        except ValueError as e:
            raise ValueError(f"{name}_hex is not hex: {e}") from e
    if isinstance(encoded, str):
        try:
            return base64.b64decode(encoded, validate=True)
        except binascii.Error as e:
            raise ValueError(f"{name}_base64 is not base64: {e}") from e
    if text is None:
        return None
    if not isinstance(text, str):
        return json.dumps(text, ensure_ascii=False).encode()
    return text.encode()
