"""Every described message, and Hypothesis strategies for their values."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import strategies as st

from quafka_proto.message import REQUESTS, Field, Message, Response, Struct
from quafka_proto.schema import (
    api_versions,
    fetch,
    list_offsets,
    metadata,
    produce,
    producer_id,
    topics,
)

MODULES = (api_versions, fetch, list_offsets, metadata, produce, producer_id, topics)
RESPONSES = sorted(
    (
        value
        for module in MODULES
        for value in vars(module).values()
        if value in Response.__subclasses__()
    ),
    key=lambda response: response.api_key,
)
MESSAGES: list[type[Message]] = [*REQUESTS.values(), *RESPONSES]
CASES = [
    (message, version)
    for message in MESSAGES
    for version in range(message.versions.low, message.versions.high + 1)
]

_BITS = {"b": 8, "h": 16, "i": 32, "q": 64}


def structs(owner: type[Struct], version: int, flexible: bool) -> st.SearchStrategy[Any]:
    """Instances with any value in the fields that the version has; defaults in the others."""
    present = {
        name: _values(field, version, flexible)
        for name, field in owner.FIELDS.items()
        if version in field.versions and (field.tag is None or flexible)
    }
    return st.builds(owner, **present)


def messages(message: type[Message], version: int) -> st.SearchStrategy[Any]:
    return structs(message, version, version in message.flexible)


def _values(field: Field, version: int, flexible: bool) -> st.SearchStrategy[Any]:
    values = _present(field, version, flexible)
    return st.none() | values if version in field.nullable else values


def _present(field: Field, version: int, flexible: bool) -> st.SearchStrategy[Any]:
    if field.kind in _BITS:
        half = 1 << _BITS[field.kind] - 1
        return st.integers(-half, half - 1)
    if field.kind == "array":
        return st.lists(_values(field.element, version, flexible), max_size=3)
    if field.kind == "struct":
        return structs(cast("type[Struct]", field.element), version, flexible)
    simple: dict[str, st.SearchStrategy[Any]] = {
        "?": st.booleans(),
        "16s": st.binary(min_size=16, max_size=16),
        "string": st.text(max_size=200),
        "records": st.binary(max_size=300),
    }
    return simple[field.kind]
