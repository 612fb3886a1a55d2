"""A client of a schema registry: Confluent's HTTP API, which Karapace and Apicurio have, too.

Everything is bounded: the time and the bytes of an answer, the schemas that one refers to, and the
cache. Redirects are not followed. What fails is a sentence, and is asked again after a while.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import quote, urlsplit

from quafka_client.bounded_http import FAILURES, get
from quafka_client.errors import ClientError
from quafka_loop import clock

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
_SECONDS = 4.0
_MOST_BYTES = 1 << 20
"""Of one answer."""
_MOST_REFERENCES = 32
_CACHE_BYTES, _CACHE_SCHEMAS = 32 << 20, 1_000
_AGAIN_SECONDS = 30.0
_AT_ONCE = 4


class RegistryError(ClientError):
    """The registry does not give a schema; the message is a sentence."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of a registry.

    Attributes:
        kind: AVRO, JSON or PROTOBUF, or another name that the registry gives.
        text: the schema itself; of PROTOBUF a descriptor in base64.
        subjects: under which it is registered.
        references: names and texts of the schemas that it refers to, each after those that it
            needs.
    """

    number: int
    kind: str
    text: str
    subjects: tuple[str, ...] = ()
    references: tuple[tuple[str, str], ...] = ()

    @property
    def size(self) -> int:
        """About its bytes in memory."""
        others = sum(len(name) + len(text) for name, text in self.references)
        return 1_000 + len(self.text) + others + sum(map(len, self.subjects))


@dataclass(slots=True)
class _Failure:
    sentence: str
    until: float


@dataclass(slots=True, eq=False)
class SchemaRegistry:
    """Schemas by their ids. `user`, `password`: for HTTP basic authentication."""

    url: str
    user: str = ""
    password: str = field(default="", repr=False)
    _schemas: dict[int, RegisteredSchema | _Failure] = field(
        default_factory=dict[int, RegisteredSchema | _Failure]
    )
    _asking: dict[int, asyncio.Future[RegisteredSchema]] = field(
        default_factory=dict[int, asyncio.Future[RegisteredSchema]]
    )
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))

    @property
    def cached(self) -> int:
        """How many answers are kept."""
        return len(self._schemas)

    async def schema(self, number: int) -> RegisteredSchema:
        """The schema of an id, within a few seconds. Raises RegistryError."""
        known = self._schemas.get(number)
        if isinstance(known, RegisteredSchema):
            self._schemas[number] = self._schemas.pop(number)  # the last to be forgotten
            return known
        if known is not None and clock.monotonic() < known.until:
            raise RegistryError(known.sentence)
        asking = self._asking.get(number)
        if asking is None:
            asking = self._asking[number] = asyncio.ensure_future(self._ask(number))
            asking.add_done_callback(lambda ended: self._asked(number, ended))
        return await asyncio.shield(asking)

    def _asked(self, number: int, ended: asyncio.Future[RegisteredSchema]) -> None:
        del self._asking[number]
        if not ended.cancelled():
            ended.exception()  # which those who wait have got

    async def _ask(self, number: int) -> RegisteredSchema:
        try:
            async with asyncio.timeout(_SECONDS), self._turns:
                found = await self._resolved(number)
        except TimeoutError:
            error = RegistryError(f"the registry did not answer within {_SECONDS:g} s")
        except RegistryError as e:
            error = e
        else:
            self._keep(number, found)
            return found
        self._keep(number, _Failure(str(error), clock.monotonic() + _AGAIN_SECONDS))
        raise error

    def _keep(self, number: int, found: RegisteredSchema | _Failure) -> None:
        self._schemas[number] = found
        size = sum(_size(each) for each in self._schemas.values())
        while len(self._schemas) > _CACHE_SCHEMAS or size > _CACHE_BYTES:
            size -= _size(self._schemas.pop(next(iter(self._schemas))))

    async def _resolved(self, number: int) -> RegisteredSchema:
        fields = await self._object(f"/schemas/ids/{number}", f"schema {number}")
        kind = str(fields.get("schemaType") or AVRO)
        form = ""
        if kind == PROTOBUF:
            form = "?format=serialized"
            fields = await self._object(f"/schemas/ids/{number}{form}", f"schema {number}")
        references: dict[tuple[str, str], tuple[str, str]] = {}
        await self._refer(fields, references, form, 0)
        subjects = await self._subjects(number)
        return RegisteredSchema(
            number, kind[:100], _text(fields), subjects, tuple(references.values())
        )

    async def _refer(
        self, fields: Mapping[str, Any], found: dict[tuple[str, str], tuple[str, str]],
        form: str, depth: int,
    ) -> None:  # fmt: skip
        """Add the schemas that one refers to, those that they need first."""
        its: Any = fields.get("references") or []
        if not isinstance(its, list):
            raise RegistryError("the registry's references are not a list")
        for each in cast("list[Any]", its):
            if not isinstance(each, dict):
                raise RegistryError("the registry's references are not objects")
            one = cast("dict[str, Any]", each)
            place = str(one.get("subject")), str(one.get("version"))
            if place in found:
                continue
            if len(found) >= _MOST_REFERENCES or depth >= _MOST_REFERENCES:
                raise RegistryError(f"a schema refers to more than {_MOST_REFERENCES} others")
            subject, version = (quote(part, safe="") for part in place)
            path = f"/subjects/{subject}/versions/{version}{form}"
            found[place] = "", ""  # a schema that refers to itself is not asked for again
            other = await self._object(path, f"schema {place[0][:200]!r}")
            await self._refer(other, found, form, depth + 1)
            del found[place]
            found[place] = str(one.get("name")), _text(other)

    async def _subjects(self, number: int) -> tuple[str, ...]:
        """For display only: older registries do not tell."""
        try:
            found = await self._json(f"/schemas/ids/{number}/subjects", "subjects")
        except RegistryError:
            return ()
        if not isinstance(found, list):
            return ()
        names = [each for each in cast("list[Any]", found) if isinstance(each, str)]
        return tuple(each[:200] for each in names[:50])

    async def _object(self, path: str, what: str) -> dict[str, Any]:
        found = await self._json(path, what)
        if not isinstance(found, dict):
            raise RegistryError(f"the registry's answer for {what} is not an object")
        return cast("dict[str, Any]", found)

    async def _json(self, path: str, what: str) -> Any:
        parts = urlsplit(self.url)
        headers = {"accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if self.user:
            both = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
            headers["authorization"] = f"Basic {both}"
        try:
            status, body = await get(
                f"{parts.scheme}://{parts.netloc}", parts.path + path, headers, _MOST_BYTES
            )
        except TimeoutError:
            raise
        except FAILURES as e:
            raise RegistryError(f"the registry cannot be read: {e or type(e).__name__}") from e
        if status == 404:
            raise RegistryError(f"the registry does not have {what}")
        if status in (401, 403):
            raise RegistryError(f"the registry refuses this user or password (status {status})")
        if status != 200:
            raise RegistryError(f"the registry answers with status {status}")
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as e:
            raise RegistryError(f"the registry's answer for {what} is not JSON") from e


def _text(fields: Mapping[str, Any]) -> str:
    text = fields.get("schema")
    if not isinstance(text, str):
        raise RegistryError("the registry's answer has no schema")
    return text


def _size(found: RegisteredSchema | _Failure) -> int:
    return found.size if isinstance(found, RegisteredSchema) else 1_000
