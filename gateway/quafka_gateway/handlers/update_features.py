"""UpdateFeatures (key 57), versions 0-2: features stay at the level at which they are finalized.

An update to that level succeeds; every other one is INVALID_UPDATE_VERSION. One refused update
fails the request as a whole, in every version, as in Kafka.
"""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import ALTER_CLUSTER, DENIED, may_on_all_orgs
from quafka_gateway.handlers.features import FEATURES
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, SeenState
from quafka_loop.slices import listed
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.cluster import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_WITHOUT_RESULTS = 2
_LEVELS = {feature.name: feature.level for feature in FEATURES}


async def handle(request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
    """Accept the updates that change nothing."""
    if not may_on_all_orgs(ALTER_CLUSTER, context):
        return await _refused(request)
    problems = await listed(map(_problem, request.feature_updates))
    problem = next((each for each in problems if each), "")
    if problem:
        return UpdateFeaturesResponse(
            error_code=ErrorCode.INVALID_UPDATE_VERSION,
            error_message=f"no feature is updated: {problem}",
        )
    if context.version >= _WITHOUT_RESULTS:
        return UpdateFeaturesResponse()
    updated = (UpdatableFeatureResult(feature=each.feature) for each in request.feature_updates)
    return UpdateFeaturesResponse(results=await listed(updated))


API = Api(
    key=57,
    versions=Versions(0, 2),
    request=UpdateFeaturesRequest,
    handle=handle,
    access=(ALTER_CLUSTER,),
    order=Order(writes=SeenState.ALL),
    audited=True,
)


def _problem(update: FeatureUpdateKey) -> str:
    """Why the feature cannot have this level; "": it has."""
    name, level = update.feature, _LEVELS.get(update.feature)
    if level is None:
        return f"{name[:100]!r} is not supported"
    return "" if level == update.max_version_level else f"{name!r} is always at level {level}"


async def _refused(request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    results = await listed(
        UpdatableFeatureResult(feature=each.feature, error_code=code, error_message=DENIED)
        for each in request.feature_updates
    )
    return UpdateFeaturesResponse(error_code=code, error_message=DENIED, results=results)
