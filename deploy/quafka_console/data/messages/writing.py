"""Records as a person types them. Pure.

A header is a line: `name=value`, `name` alone for null, or JSON for everything else:
`{"name": "a=b", "value": "two\\nlines"}`, with "base64" in place of "value" for other bytes.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any, cast

from quafka_client.errors import ClientError
from quafka_console.data.messages.records import KeptBytes, ReadRecord
from quafka_console.data.typed import whole_number
from quafka_proto.record_codec import Record

NULL, TEXT, BASE64, HEX = "null", "text", "base64", "hex"
ENCODINGS = (TEXT, BASE64, HEX, NULL)
_PARTITION_DIGITS = 9


@dataclass(frozen=True, slots=True)
class TypedBytes:
    """A key or value in one of ENCODINGS."""

    text: str = ""
    encoding: str = TEXT

    def data(self, what: str) -> bytes | None:
        """Raises ClientError: the text is not of the encoding."""
        if self.encoding == NULL:
            return None
        try:
            if self.encoding == BASE64:
                return base64.b64decode("".join(self.text.split()), validate=True)
            if self.encoding == HEX:
                return bytes.fromhex(self.text)
            return self.text.encode()
        except (ValueError, binascii.Error) as e:
            raise ClientError(f"the {what} is not {self.encoding}: {e}") from e


@dataclass(frozen=True, slots=True)
class TypedRecord:
    """A record that is to be written. `partition`: "": the key chooses."""

    key: TypedBytes = TypedBytes(encoding=NULL)
    value: TypedBytes = TypedBytes()
    headers: str = ""
    partition: str = ""

    def record(self, now: int) -> Record:
        """`now`: its time in ms since 1970. Raises ClientError: something is not as it must be."""
        return Record(
            0, now, self.key.data("key"), self.value.data("value"), _headers(self.headers)
        )

    def chosen(self) -> int | None:
        """The partition; None: the key chooses. Raises ClientError."""
        text = self.partition.strip()
        return whole_number(text, "a partition", _PARTITION_DIGITS) if text else None


def copied(record: ReadRecord) -> TypedRecord | None:
    """A record to change and write again; None: parts of it are cut, or it is no record of data."""
    parts = [record.key, record.value, *(value for _, value in record.headers)]
    if record.mark or len(record.headers) < record.all_headers:
        return None
    if not all(each is None or each.whole for each in parts):
        return None
    headers = "\n".join(_line(name, value) for name, value in record.headers)
    return TypedRecord(_typed(record.key), _typed(record.value), headers, str(record.partition))


def _typed(kept: KeptBytes | None) -> TypedBytes:
    if kept is None:
        return TypedBytes(encoding=NULL)
    try:
        text = kept.data.decode()
    except UnicodeDecodeError:
        return TypedBytes(base64.b64encode(kept.data).decode(), BASE64)
    if "\r" in text or "\0" in text:  # which a browser's text field would change
        return TypedBytes(base64.b64encode(kept.data).decode(), BASE64)
    return TypedBytes(text)


def _line(name: str, value: KeptBytes | None) -> str:
    typed = _typed(value)
    text = name if typed.encoding == NULL else f"{name}={typed.text}"
    simple = text == text.strip() and text.isprintable() and text and text[0] != "{"
    if simple and typed.encoding != BASE64 and "=" not in name:
        return text
    field = {NULL: {}, BASE64: {"base64": typed.text}, TEXT: {"value": typed.text}}[typed.encoding]
    return json.dumps({"name": name, **field})


def _headers(text: str) -> list[tuple[str, bytes | None]]:
    found: list[tuple[str, bytes | None]] = []
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if stripped.startswith("{"):
            found.append(_from_json(stripped, number))
        elif stripped:
            name, is_, value = stripped.partition("=")
            typed = TypedBytes(value, TEXT if is_ else NULL)
            found.append((name, typed.data(f"value of header {number}")))
        if found:
            TypedBytes(found[-1][0]).data(f"name of header {number}")
    return found


def _from_json(line: str, number: int) -> tuple[str, bytes | None]:
    try:
        parsed: Any = json.loads(line)
    except (ValueError, RecursionError) as e:
        raise ClientError(f"header {number} is not JSON: {e}") from e
    fields = cast("dict[str, Any]", parsed)
    if not all(isinstance(each, str) for each in fields.values()) or "name" not in fields:
        raise ClientError(f'header {number} is not {{"name": "…", "value": "…"}}')
    if fields.keys() - {"name", "value", "base64"}:
        raise ClientError(f"header {number} has other fields than name, value and base64")
    encoding = BASE64 if "base64" in fields else TEXT if "value" in fields else NULL
    text = fields.get("base64", fields.get("value", ""))
    return fields["name"], TypedBytes(text, encoding).data(f"value of header {number}")
