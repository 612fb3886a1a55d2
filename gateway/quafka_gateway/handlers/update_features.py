"""UpdateFeatures (key 57), versions 0-2: INVALID_UPDATE_VERSION, as the cluster has no features.

From version 2 on the request fails as a whole.
"""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, State
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.cluster import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


async def handle(request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
    """Refuse each feature, or the whole request."""
    code = ErrorCode.INVALID_UPDATE_VERSION
    results = [
        UpdatableFeatureResult(
            feature=each.feature,
            error_code=code,
            error_message=f"the feature {each.feature[:100]!r} is not supported",
        )
        for each in request.feature_updates
    ]
    if context.version < 2 or not results:
        return UpdateFeaturesResponse(results=results)
    return UpdateFeaturesResponse(error_code=code, error_message=results[0].error_message)


API = Api(
    key=57,
    versions=Versions(0, 2),
    request=UpdateFeaturesRequest,
    handle=handle,
    order=Order(writes=State.ALL),
)
