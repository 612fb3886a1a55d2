"""AlterClientQuotas and DescribeClientQuotas on a plain connection."""

from __future__ import annotations

from collections.abc import Mapping

from quafka_proto.schema.quotas import (
    AlterClientQuotasEntryData,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    OpData,
)
from tests.support.raw_client import RawClient

Entity = Mapping[str, str | None]


def alter(
    client: RawClient,
    entity: Entity,
    *,
    validate_only: bool = False,
    version: int = 1,
    **values: float | None,
) -> tuple[int, str | None]:
    """Set quotas of an entity, or remove them (None); returns the error code and message."""
    return _alter(client, entity, values, validate_only, version)


def clear(client: RawClient) -> None:
    """Remove all quotas."""
    for entity, values in describe(client).items():
        assert _alter(client, dict(entity), dict.fromkeys(values), False, 1) == (0, None)


def _alter(
    client: RawClient,
    entity: Entity,
    values: Mapping[str, float | None],
    validate_only: bool,
    version: int,
) -> tuple[int, str | None]:
    ops = [OpData(key=k, value=v or 0.0, remove=v is None) for k, v in values.items()]
    parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    request = AlterClientQuotasRequest(
        entries=[AlterClientQuotasEntryData(entity=parts, ops=ops)], validate_only=validate_only
    )
    (entry,) = client.call(request, AlterClientQuotasResponse, version).entries
    assert {part.entity_type: part.entity_name for part in entry.entity} == entity
    return entry.error_code, entry.error_message


def describe(
    client: RawClient, *parts: tuple[str, int, str | None], strict: bool = False, version: int = 1
) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    """The quotas that match: values by entity."""
    components = [ComponentData(entity_type=k, match_type=m, match=n) for k, m, n in parts]
    request = DescribeClientQuotasRequest(components=components, strict=strict)
    answer = client.call(request, DescribeClientQuotasResponse, version)
    assert not answer.error_code, answer.error_message
    return {
        tuple(sorted((part.entity_type, part.entity_name) for part in entry.entity)): {
            value.key: value.value for value in entry.values
        }
        for entry in answer.entries or []
    }
