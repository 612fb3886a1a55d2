"""Features, brokers and delegation tokens: what administrators of the cluster are answered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from quafka_gateway.api import APIS
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.cluster import (
    FeatureUpdateKey,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.support.joined import Joined
from tests.unit.gateway.test_declared_order import SAMPLES, served

REFUSED = ErrorCode.INVALID_UPDATE_VERSION


@pytest.fixture
async def joined() -> AsyncIterator[Joined]:
    both = Joined()
    await both.start_broker()
    yield both
    await both.stop_broker()


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_one_refused_feature_fails_the_request_as_a_whole(
    joined: Joined, version: int
) -> None:
    async def update(**levels: int) -> tuple[int, list[str]]:
        updates = [
            FeatureUpdateKey(feature=f"{name}.version", max_version_level=level)
            for name, level in levels.items()
        ]
        request = UpdateFeaturesRequest(feature_updates=updates)
        answer = await joined.connect().call(request, UpdateFeaturesResponse, version)
        assert bool(answer.error_message) == bool(answer.error_code)
        assert not any(each.error_code for each in answer.results)
        return answer.error_code, [each.feature for each in answer.results]

    named = ["share.version", "group.version"] if version < 2 else []
    assert await update(share=1, group=1) == (0, named)
    assert await update() == (0, [])
    assert await update(bogus=1) == (REFUSED, [])
    assert await update(group=1, bogus=1) == (REFUSED, [])
    assert await update(share=0, group=1) == (REFUSED, [])
    assert await update(group=2) == (REFUSED, [])
    assert await update(metadata=30) == (REFUSED, [])


async def test_no_broker_is_unregistered(joined: Joined) -> None:
    async def unregister(broker: int) -> int:
        request = UnregisterBrokerRequest(broker_id=broker)
        answer = await joined.connect().call(request, UnregisterBrokerResponse, 0)
        assert answer.error_message
        return answer.error_code

    assert await unregister(77) == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert await unregister(-1) == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert await unregister(joined.services.config.node_id) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("key", [38, 39, 40, 41])
@pytest.mark.parametrize(
    ("mechanism", "code"),
    [
        ("", ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
        ("SSL", ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED),
        ("SCRAM-SHA-256", ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED),
    ],
)
async def test_there_are_no_delegation_tokens(key: int, mechanism: str, code: int) -> None:
    request, version = SAMPLES[key]
    async with served() as (_, context):
        context.session.mechanism = mechanism
        answer = await APIS[key].handle(request, replace(context, version=version))
    assert getattr(answer, "error_code") == code  # noqa: B009 - Message has no such field
    assert getattr(answer, "tokens", []) == []
    assert getattr(answer, "expiry_timestamp_ms", -1) == -1
    assert getattr(answer, "principal_name", "ANONYMOUS") == "ANONYMOUS"
