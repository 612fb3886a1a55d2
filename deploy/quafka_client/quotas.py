"""Client quotas (KIP-546): by user, by client id, by both, and by IP address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quafka_client.cluster import ClientCluster
from quafka_client.errors import check
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

_EXACT, _DEFAULT = 0, 1

Entity = tuple[tuple[str, str | None], ...]
"""A name for each kind ("user", "client-id", "ip"); None: the default of the kind."""


@dataclass(frozen=True, slots=True)
class EntityQuotas:
    """The quotas of one entity."""

    entity: dict[str, str | None]
    quotas: dict[str, float]


async def quotas(cluster: ClientCluster, entity: Entity) -> list[EntityQuotas]:
    """The quotas of the entities that include these parts. Raises ClientError."""
    request = DescribeClientQuotasRequest(
        components=[
            ComponentData(
                entity_type=kind, match_type=_DEFAULT if name is None else _EXACT, match=name
            )
            for kind, name in entity
        ]
    )
    answer = await cluster.call(request, DescribeClientQuotasResponse)
    check(answer.error_code, "quotas", answer.error_message)
    found = [
        EntityQuotas(
            {part.entity_type: part.entity_name for part in entry.entity},
            {each.key: each.value for each in sorted(entry.values, key=lambda each: each.key)},
        )
        for entry in answer.entries or []
    ]
    return sorted(found, key=lambda each: [(k, n or "") for k, n in sorted(each.entity.items())])


async def alter(
    cluster: ClientCluster,
    entity: Entity,
    values: Mapping[str, float],
    removed: Sequence[str],
    *,
    validate_only: bool,
) -> None:
    """Set and remove quotas of an entity. Raises ClientError."""
    ops = [OpData(key=key, value=value) for key, value in values.items()]
    ops += [OpData(key=key, remove=True) for key in removed]
    parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
    request = AlterClientQuotasRequest(
        entries=[AlterClientQuotasEntryData(entity=parts, ops=ops)], validate_only=validate_only
    )
    (result,) = (await cluster.call(request, AlterClientQuotasResponse)).entries
    check(result.error_code, text_of(dict(entity)), result.error_message)


def text_of(entity: Mapping[str, str | None]) -> str:
    """An entity as text: "user alice, client-id <default>"."""
    return ", ".join(
        f"{kind} {'<default>' if name is None else name}" for kind, name in sorted(entity.items())
    )
