"""How `quafka consume` shows keys and values: as they are, as JSON, hex or base64."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from math import isfinite
from typing import Any, Protocol

from quafka_client.errors import ClientError

Fields = dict[str, Any]


class RecordForm(Protocol):
    """A form of keys or values that are not null."""

    def text(self, data: bytes) -> bytes:
        """For a line. Raises ClientError."""
        ...

    def fields(self, name: str, data: bytes) -> Fields:
        """For a JSON object; `name`: of the field, as in `value` and `value_base64`.

        Raises ClientError.
        """
        ...


class _Raw:
    def text(self, data: bytes) -> bytes:
        return data

    def fields(self, name: str, data: bytes) -> Fields:
        try:
            return {name: data.decode()}
        except UnicodeDecodeError:
            return _Base64().fields(name, data)


class _Base64:
    def text(self, data: bytes) -> bytes:
        return base64.b64encode(data)

    def fields(self, name: str, data: bytes) -> Fields:
        return {name: None, f"{name}_base64": self.text(data).decode()}


class _Hex:
    def text(self, data: bytes) -> bytes:
        return data.hex().encode()

    def fields(self, name: str, data: bytes) -> Fields:
        return {name: None, f"{name}_hex": data.hex()}


class _Json:
    """What is not JSON is a string, or as in base64 if it is not UTF-8 either."""

    def text(self, data: bytes) -> bytes:
        found = self.fields("value", data)
        return json_line(found["value"] if len(found) == 1 else {"base64": found["value_base64"]})

    def fields(self, name: str, data: bytes) -> Fields:
        try:
            return {name: json.loads(data, parse_constant=_refuse, parse_float=_finite)}
        except (ValueError, RecursionError):
            return _Raw().fields(name, data)


def _finite(text: str) -> float:
    found = float(text)
    return found if isfinite(found) else _refuse(text)


def _refuse(text: str) -> float:
    """NaN and Infinity, which Python reads and writes, are no JSON (RFC 8259)."""
    raise ValueError(text)


def json_line(value: Any) -> bytes:
    """JSON in one line. Raises ClientError: it is too deep."""
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON has and UTF-8 has not
        return json.dumps(value).encode()
    except RecursionError as e:
        raise ClientError("the JSON is too deep") from e


RAW: RecordForm = _Raw()
FORMS_BY_NAME: dict[str, Callable[[], RecordForm]] = {
    "raw": _Raw, "json": _Json, "hex": _Hex, "base64": _Base64,
}  # fmt: skip


def form(name: str) -> RecordForm:
    """The form of a name."""
    return FORMS_BY_NAME[name]()
