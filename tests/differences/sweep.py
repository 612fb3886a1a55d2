"""Every API in every version that both servers have, with next to nothing in the request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from quafka_gateway.api import APIS
from quafka_proto.errors import Malformed
from quafka_proto.message import Field, Message, Struct
from quafka_proto.schema import response_type
from quafka_proto.schema.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.differences.observed import Observed, observe
from tests.support.raw_client import RawClient

Address = tuple[str, int]

_GIVEN = {"acks": 1, "timeout_ms": 5_000, "max_wait_ms": 0, "min_bytes": 0}
"""Values without which there is no answer, or a late one."""
_CLOSED = "the connection is closed"


def sweep(quafka: Address, kafka: Address) -> Iterator[tuple[str, Observed, Observed]]:
    """What each server answers: to the empty request, and to one with an item in each list."""
    offered = _offered(kafka)
    for key, api in APIS.items():
        low, high = offered.get(key, (0, -1))
        for version in range(max(low, api.versions.low), min(high, api.versions.high) + 1):
            for how, items in (("empty", 0), ("an item", 1)):
                request = cast(Message, _neutral(api.request, version, items, f"n{key}-{version}"))
                yield (
                    f"{api.name} {version}, {how}",
                    _ask(quafka, request, key, version),
                    _ask(kafka, request, key, version),
                )


def _offered(kafka: Address) -> dict[int, tuple[int, int]]:
    with RawClient(kafka) as client:
        answer = client.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
    return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}


def _ask(address: Address, request: Message, key: int, version: int) -> Observed:
    kind = response_type(key)
    assert kind is not None
    try:
        with RawClient(address, timeout=20) as client:
            return observe(client.call(request, kind, version))
    except TimeoutError:
        return {"": "no answer"}
    except Malformed as e:
        return {"": f"an answer that cannot be read: {e}"}
    except ConnectionError:
        return {"": _CLOSED}


def _neutral(owner: type[Struct], version: int, items: int, name: str) -> Struct:
    return owner(
        **{
            field: _value(field, described, version, items, name)
            for field, described in owner.FIELDS.items()
            if version in described.versions and described.tag is None
        }
    )


def _value(name: str, field: Field, version: int, items: int, text: str) -> Any:
    if name in _GIVEN:
        return _GIVEN[name]
    if field.kind == "string" and version not in field.nullable:
        return text
    if field.kind == "array" and (items or version not in field.nullable):
        element = cast(Field, field.element)
        return [_element(element, version, items, text) for _ in range(items)]
    if field.kind == "struct" and version not in field.nullable:
        return _neutral(field.element, version, items, text)
    return field.fresh_default()


def _element(field: Field, version: int, items: int, text: str) -> Any:
    if field.kind == "struct":
        return _neutral(field.element, version, items, text)
    if field.kind == "string":
        return text
    return field.fresh_default() if field.kind != "16s" else bytes(16)
