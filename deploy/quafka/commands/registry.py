"""The schema registry of `produce` and `consume`, asked from outside an event loop."""

from __future__ import annotations

import argparse
import asyncio
import json
from types import TracebackType
from typing import Any, Self

from quafka.commands.forms import Fields, RecordForm, json_line
from quafka.commands.options import UsageError
from quafka_client.registry.client import RegisteredSchema, SchemaRegistry
from quafka_client.registry.values import json_value, schema_id


class RegistrySchemas:
    """Schemas by their ids. A context manager, which has an event loop of its own."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._runner = asyncio.Runner()
        self._known: dict[int, RegisteredSchema] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._runner.close()

    def schema(self, number: int) -> RegisteredSchema:
        """The schema of an id, within a few seconds. Raises RegistryError."""
        found = self._known.get(number)
        if found is None:
            found = self._known[number] = self._runner.run(self._registry.schema(number))
        return found


class DecodedForm:
    """The form of data by the schema that it names; other data has another form."""

    def __init__(self, schemas: RegistrySchemas, otherwise: RecordForm) -> None:
        self._schemas, self._otherwise = schemas, otherwise

    def text(self, data: bytes) -> bytes:
        """JSON in one line. Raises ClientError."""
        number = schema_id(data)
        if number is None:
            return self._otherwise.text(data)
        return json_line(json_value(self._schemas.schema(number), data))

    def fields(self, name: str, data: bytes) -> Fields:
        """The JSON, and the schema's id. Raises ClientError."""
        number = schema_id(data)
        if number is None:
            return self._otherwise.fields(name, data)
        value = json_value(self._schemas.schema(number), data)
        return {name: value, f"{name}_schema": number}

    def json_of(self, data: bytes) -> Any:
        """For conditions. Raises ValueError: it has no JSON; ClientError: it cannot be decoded."""
        number = schema_id(data)
        return (
            json.loads(data) if number is None else json_value(self._schemas.schema(number), data)
        )


def schemas_at(url: str, options: argparse.Namespace) -> RegistrySchemas:
    """The registry of a URL, with the user of a command's flags. Raises UsageError."""
    return RegistrySchemas(SchemaRegistry(url, options.registry_user, _password(options)))


def _password(options: argparse.Namespace) -> str:
    if options.registry_password_file is None:
        return ""
    try:
        text: str = options.registry_password_file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(f"--registry-password-file: {e}") from e
    return text.partition("\n")[0].rstrip("\r")
