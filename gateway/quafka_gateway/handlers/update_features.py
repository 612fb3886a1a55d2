"""UpdateFeatures (key 57), versions 0-2: features stay at the level at which they are finalized.

An update to that level succeeds; every other one is INVALID_UPDATE_VERSION. From version 2 on one
refused update fails the request as a whole.
"""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import ALTER_CLUSTER, DENIED, may_on_all_orgs
from quafka_gateway.handlers.features import FEATURES
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, State
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.cluster import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from quafka_telemetry.slices import listed

_LEVELS = {feature.name: feature.level for feature in FEATURES}


async def handle(request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
    """Accept the updates that change nothing."""
    if not may_on_all_orgs(ALTER_CLUSTER, context):
        return await _refused(request)
    results = await listed(map(_result, request.feature_updates))
    if context.version < 2:
        return UpdateFeaturesResponse(results=results)
    refused = next((each for each in results if each.error_code), None)
    if refused is None:
        return UpdateFeaturesResponse()
    return UpdateFeaturesResponse(
        error_code=refused.error_code, error_message=refused.error_message
    )


API = Api(
    key=57,
    versions=Versions(0, 2),
    request=UpdateFeaturesRequest,
    handle=handle,
    access=(ALTER_CLUSTER,),
    order=Order(writes=State.ALL),
    audited=True,
)


def _result(update: FeatureUpdateKey) -> UpdatableFeatureResult:
    name, level = update.feature, _LEVELS.get(update.feature)
    if level == update.max_version_level:
        return UpdatableFeatureResult(feature=name)
    if level is None:
        message = f"the feature {name[:100]!r} is not supported"
    else:
        message = f"the feature {name!r} is always at level {level}"
    return UpdatableFeatureResult(
        feature=name, error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message=message
    )


async def _refused(request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    results = await listed(
        UpdatableFeatureResult(feature=each.feature, error_code=code, error_message=DENIED)
        for each in request.feature_updates
    )
    return UpdateFeaturesResponse(error_code=code, error_message=DENIED, results=results)
