"""Every field agrees with Kafka's own protocol definitions, version by version.

kafka-python ships those definitions (Kafka's JSON message files) of the APIs that it uses, in the
versions of Kafka 4. Unlike bytes on the wire they also give the defaults of fields that a version
does not have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import pytest

from quafka_proto.message import Field, Message, Struct, Versions
from tests.property.proto.messages import MESSAGES

# Ours, for whoever constructs it: a consumer's replica id. It is in every version, so no reader
# sees the default.
OTHER_DEFAULTS = {"ListOffsetsRequest.replica_id": -1}
FOLDER = files("kafka.protocol.schemas.resources")
KINDS = {"?": "bool", "b": "int8", "h": "int16", "i": "int32", "q": "int64", "16s": "uuid"}
KINDS |= {"H": "uint16", "d": "float64"}


@cache
def definition(name: str) -> dict[str, Any]:
    text = FOLDER.joinpath(f"{name}.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    return loaded


DEFINED = [m for m in MESSAGES if FOLDER.joinpath(f"{m.__name__}.json").is_file()]


def includes(versions: str | None, version: int) -> bool:
    """Whether "0-4", "3+", "7" or "none" includes the version."""
    if versions in (None, "none"):
        return False
    low, dash, high = versions.rstrip("+").partition("-")
    if versions.endswith("+"):
        return version >= int(low)
    return int(low) <= version <= int(high if dash else low)


def type_of(field: Field) -> str:
    if field.kind == "array":
        return f"[]{type_of(field.element)}"
    if field.kind == "struct":
        return "struct"
    return KINDS.get(field.kind, field.kind)


def kafka_type(spec: dict[str, Any]) -> str:
    name = kafka_name(spec)
    prefix = "[]" if spec["type"].startswith("[]") else ""
    return prefix + ("struct" if name[0].isupper() else name)


def kafka_default(spec: dict[str, Any]) -> Any:
    """Kafka's default; for error_message our rule, null where no error is."""
    kind, text = kafka_type(spec), spec.get("default")
    nullable = spec.get("nullableVersions", "none") != "none"
    if text == "null" or kind == "records" or (spec["name"] == "ErrorMessage" and nullable):
        return None
    if kind.startswith(("int", "uint")):
        return int(str(text or 0), 0)
    if kind == "bool":
        return text in (True, "true")
    return {"string": text or "", "uuid": bytes(16), "bytes": b"", "float64": 0.0}[kind]


class Part(NamedTuple):
    """One of our fields, Kafka's definition of it, and the versions of its struct."""

    name: str
    field: Field
    spec: dict[str, Any]
    served: list[int]


def parts(
    ours: type[Struct], specs: list[dict[str, Any]], common: dict[str, Any], served: list[int]
) -> list[Part]:
    """Our fields beside those that Kafka has in these versions, in order, nested ones too."""
    specs = [spec for spec in specs if any(includes(spec["versions"], v) for v in served)]
    fields = {n: f for n, f in ours.FIELDS.items() if any(v in f.versions for v in served)}
    assert len(fields) == len(specs), ours.__name__
    found: list[Part] = []
    for (name, field), spec in zip(fields.items(), specs, strict=True):
        found.append(Part(f"{ours.__name__}.{name}", field, spec, served))
        item = field.element if field.kind == "array" else field
        if item.kind == "struct":
            inner = spec.get("fields") or common[kafka_name(spec)]
            inside = [v for v in served if includes(spec["versions"], v)]
            found += parts(item.element, inner, common, inside)
    return found


def all_parts(message: type[Message]) -> list[Part]:
    spec = definition(message.__name__)
    common = {entry["name"]: entry["fields"] for entry in spec.get("commonStructs", [])}
    common |= {kafka_name(entry): entry["fields"] for entry in nested(spec)}
    lowest = Versions.parse(spec["validVersions"]).low
    return parts(message, spec["fields"], common, list(range(lowest, message.versions.high + 1)))


def nested(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every field of the definition that has fields; others may name their type."""
    for field in spec.get("fields", []):
        if "fields" in field:
            yield field
            yield from nested(field)


def kafka_name(spec: dict[str, Any]) -> str:
    name: str = spec["type"]
    return name.removeprefix("[]")


@pytest.mark.parametrize("message", DEFINED, ids=lambda m: m.__name__)
def test_message(message: type[Message]) -> None:
    spec = definition(message.__name__)
    assert message.api_key == spec["apiKey"]
    assert Versions.parse(spec["validVersions"]).high == message.versions.high
    assert Versions.parse(spec["validVersions"]).low >= message.versions.low
    for version in range(message.versions.low, message.versions.high + 1):
        assert (version in message.flexible) == includes(spec["flexibleVersions"], version)


@pytest.mark.parametrize("message", DEFINED, ids=lambda m: m.__name__)
def test_every_field(message: type[Message]) -> None:
    for name, field, spec, _ in all_parts(message):
        assert name.split(".")[1].replace("_", "") == spec["name"].lower(), name
        assert type_of(field) == kafka_type(spec), name
        assert field.tag == spec.get("tag"), name
        if field.kind not in ("array", "struct") or spec.get("default") == "null":
            assert field.default == OTHER_DEFAULTS.get(name, kafka_default(spec)), name


@pytest.mark.parametrize("message", DEFINED, ids=lambda m: m.__name__)
def test_every_field_in_every_version(message: type[Message]) -> None:
    for name, field, spec, served in all_parts(message):
        for version in served:
            at = f"{name} v{version}"
            present = includes(spec["versions"], version)
            assert (version in field.versions) == present, at
            if not present:
                continue
            if field.kind != "records":
                nullable = includes(spec.get("nullableVersions"), version)
                assert (version in field.nullable) == nullable, at
            if field.tag is not None:
                assert includes(spec["taggedVersions"], version), at


def test_the_other_defaults_are_of_fields_in_every_version() -> None:
    """A constructor fills them in; a reader never sees them."""
    found = {part.name: part for message in DEFINED for part in all_parts(message)}
    for name in OTHER_DEFAULTS:
        part = found[name]
        assert all(version in part.field.versions for version in part.served), name
