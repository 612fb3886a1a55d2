"""DescribeClientQuotas (key 48), versions 0-1: the quotas of the client's org that match a filter.

As in Kafka, the parts of an entity are in the order client-id, user, and its values in that of
`PLACES`. A filter that has no meaning is answered INVALID_REQUEST, one by other types of entities
UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from collections.abc import Generator

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DENIED, DESCRIBE_CLUSTER_CONFIGS, may_on_cluster
from quafka_gateway.handlers.kafka_api import Api, ResponseLength
from quafka_gateway.handlers.order import Order, SeenState
from quafka_gateway.quotas import records
from quafka_gateway.quotas.filters import EntityFilter, FilterError
from quafka_gateway.quotas.kinds import PLACES
from quafka_loop.slices import in_slices, listed
from quafka_mesh_ops.ops.security import QuotaRecord
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)


async def handle(
    request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    """List the quotas that match."""
    if not may_on_cluster(DESCRIBE_CLUSTER_CONFIGS, context):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return DescribeClientQuotasResponse(error_code=code, error_message=DENIED, entries=None)
    try:
        parts = await listed((e.entity_type, e.match_type, e.match) for e in request.components)
        wanted = EntityFilter(parts, strict=request.strict)
    except FilterError as e:
        return DescribeClientQuotasResponse(error_code=e.code, error_message=str(e), entries=None)
    entries: list[EntryData] = []

    def find() -> Generator[None, None, None]:
        for key, record in list(
            records.quotas_of(context.services.directory, context.tenant).items()
        ):
            if wanted.matches(key):
                entity = [EntityData(entity_type=kind, entity_name=name) for kind, name in key]
                entries.append(EntryData(entity=entity, values=_ordered(record)))
            yield

    await in_slices(find())
    return DescribeClientQuotasResponse(entries=entries)


def _ordered(record: QuotaRecord) -> list[ValueData]:
    return sorted(record.values, key=lambda each: PLACES.get(each.key, 0))


API = Api(
    key=48,
    versions=Versions(0, 1),
    request=DescribeClientQuotasRequest,
    handle=handle,
    access=(DESCRIBE_CLUSTER_CONFIGS,),
    order=Order(reads=SeenState.QUOTAS),
    response_length=ResponseLength.LONG,
)
