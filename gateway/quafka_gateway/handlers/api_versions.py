"""ApiVersions (key 18), versions 0-4: the APIs and versions that this gateway serves.

A later version is answered as version 0, with error 35 and the served versions (KIP-511). Features
are answered in version 4 alone: they are tagged fields, and librdkafka before 2.1, which sends
version 3, cannot skip those (librdkafka#4278). (Apache Kafka 4.3 has the finalized ones in version
3, too, and of the supported ones those whose least version is not 0.) Quafka's own APIs are listed
only for Quafka's own tools, which name themselves in the request.
"""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.features import EPOCH, FEATURES
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from quafka_proto.schema.quafka import CLIENT_SOFTWARE

_FIRST_WITH_FEATURES = 4


class UnknownVersionRequest(ApiVersionsRequest):
    """Stands for an ApiVersions request of a version that cannot be decoded."""


async def handle(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    """List the table of APIs."""
    our_tool = request.client_software_name == CLIENT_SOFTWARE
    keys = [
        ApiVersion(
            api_key=key,
            min_version=api.versions.low,
            max_version=api.versions.high,
        )
        for key, api in sorted(context.services.apis.items())
        if our_tool or not api.quafka_only
    ]
    unknown = isinstance(request, UnknownVersionRequest)
    if context.version < _FIRST_WITH_FEATURES or unknown:
        return ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION if unknown else ErrorCode.NONE, api_keys=keys
        )
    return ApiVersionsResponse(
        api_keys=keys,
        supported_features=[SupportedFeatureKey(*each) for each in FEATURES],
        finalized_features_epoch=EPOCH,
        finalized_features=[FinalizedFeatureKey(f.name, f.level, f.level) for f in FEATURES],
    )


API = Api(
    key=18,
    versions=Versions(0, 4),
    request=ApiVersionsRequest,
    handle=handle,
    access=(),
    order=Order(),
    unknown_version=UnknownVersionRequest,
)
