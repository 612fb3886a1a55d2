"""Keys and values of a page in Confluent's wire format, as JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from quafka_client.errors import ClientError
from quafka_client.registry.client import RegisteredSchema, RegistryError, SchemaRegistry
from quafka_client.registry.values import MOST_IDS, json_value, schema_id
from quafka_console.data.messages.records import KeptBytes

_MOST_TEXT = 512 << 10
"""Characters of a decoded value."""
_MOST_LINE = 1_000


@dataclass(frozen=True, slots=True)
class DecodedValue:
    """A value as its schema has it.

    Attributes:
        text: as JSON; "": it is not decoded.
        problem: why it is not decoded, as a sentence.
        subjects: of the schema.
    """

    number: int
    kind: str = ""
    text: str = ""
    problem: str = ""
    subjects: Sequence[str] = ()


@dataclass(slots=True)
class ValueDecoder:
    """Decodes the keys and values of a page.

    Attributes:
        known: their schemas, or why there is none.
        topic: only its own subjects are named; "": all are.
    """

    known: dict[int, RegisteredSchema | str] = field(
        default_factory=dict[int, "RegisteredSchema | str"]
    )
    topic: str = ""

    @classmethod
    async def of(
        cls, registry: SchemaRegistry | None, values: Iterable[KeptBytes | None], topic: str = ""
    ) -> ValueDecoder:
        """Ask for the schemas of these values, of a few of them at most."""
        if registry is None:
            return cls()
        ids = (None if each is None else schema_id(each.data) for each in values)
        numbers = list(dict.fromkeys(each for each in ids if each is not None))

        async def ask(number: int) -> RegisteredSchema | str:
            try:
                return await registry.schema(number)
            except RegistryError as e:
                return str(e)

        found = await asyncio.gather(*map(ask, numbers[:MOST_IDS]))
        return cls(dict(zip(numbers, found, strict=False)), topic)

    def line(self, kept: KeptBytes | None) -> str:
        """The beginning of a value as JSON in one line; "": it cannot be decoded."""
        found = self._decoded(kept, None, _MOST_LINE)
        return "" if found is None else found.text

    def decoded(self, kept: KeptBytes | None) -> DecodedValue | None:
        """The value as indented JSON.

        None: it does not begin with a schema's id, or there is no registry. Takes up to some
        hundred milliseconds.
        """
        return self._decoded(kept, 2, _MOST_TEXT)

    def _decoded(
        self, kept: KeptBytes | None, indent: int | None, most: int
    ) -> DecodedValue | None:
        number = None if kept is None else schema_id(kept.data)
        if kept is None or number is None or not self.known:
            return None
        schema = self.known.get(number, f"a page shows values of at most {MOST_IDS} schemas")
        if isinstance(schema, str):
            return DecodedValue(number, problem=schema)
        own = tuple(
            each for each in schema.subjects if not self.topic or each.startswith(f"{self.topic}-")
        )
        if not kept.whole:
            problem = f"only values of up to {len(kept.data):,} bytes are decoded"
            return DecodedValue(number, schema.kind, "", problem, own)
        try:
            text = _dumped(json_value(schema, kept.data), indent, most)
        except ClientError as e:
            return DecodedValue(number, schema.kind, "", str(e), own)
        return DecodedValue(number, schema.kind, text, "", own)


def _dumped(value: Any, indent: int | None, most: int) -> str:
    """JSON, cut where it gets long: names of fields can multiply the size of a value."""
    parts: list[str] = []
    size = 0
    try:
        for part in json.JSONEncoder(indent=indent, ensure_ascii=False).iterencode(value):
            parts.append(part)
            size += len(part)
            if size > most:
                return "".join(parts)[:most] + "…"
    except RecursionError:
        return "(nested too deeply to be shown)"
    return "".join(parts)
