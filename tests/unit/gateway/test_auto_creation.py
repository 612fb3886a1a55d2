"""Which requests create a topic that does not exist, and what they are answered.

Gateway and broker are whole, in one process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from quafka_proto.errors import ErrorCode
from quafka_proto.schema.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from quafka_proto.schema.produce import ProduceResponse
from quafka_proto.schema.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from tests.support.joined import Joined
from tests.support.kafka_calls import produce_request

MISSING = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
FOUND = (ErrorCode.NONE, 1)
VERSIONS = pytest.mark.parametrize("version", range(14))


class Asked(Joined):
    """With calls about the topic "t"."""

    async def metadata(self, version: int = 12, *, creates: bool = True) -> tuple[int, int]:
        """The topic's error, and its number of partitions."""
        topic = MetadataRequestTopic(name="t")
        request = MetadataRequest(topics=[topic], allow_auto_topic_creation=creates)
        answer = await self.connect().call(request, MetadataResponse, version)
        (found,) = answer.topics
        return found.error_code, len(found.partitions)

    async def create(self) -> None:
        new = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        request = CreateTopicsRequest(topics=[new])
        answer = await self.connect().call(request, CreateTopicsResponse, 5)
        assert not answer.topics[0].error_code

    async def delete(self) -> None:
        request = DeleteTopicsRequest(topic_names=["t"])
        answer = await self.connect().call(request, DeleteTopicsResponse, 5)
        assert not answer.responses[0].error_code

    async def produce(self) -> int:
        answer = await self.connect().call(produce_request("t", b"x"), ProduceResponse, 9)
        return answer.responses[0].partition_responses[0].error_code


@pytest.fixture
async def asked() -> AsyncIterator[Asked]:
    both = Asked()
    await both.start_broker()
    yield both
    await both.stop_broker()


@VERSIONS
async def test_a_topic_that_never_existed_is_created_at_once(asked: Asked, version: int) -> None:
    if version >= 4:
        assert await asked.metadata(version, creates=False) == MISSING
    assert await asked.metadata(version) == FOUND


@VERSIONS
async def test_the_first_to_ask_for_a_deleted_topic_learns_that_it_is_gone(
    asked: Asked, version: int
) -> None:
    await asked.create()
    for _ in range(2):
        await asked.delete()
        if version >= 4:
            assert await asked.metadata(version, creates=False) == MISSING
        assert await asked.metadata(version) == MISSING
        assert await asked.metadata(4, creates=False) == MISSING
        assert await asked.metadata(version) == FOUND


async def test_a_topic_that_is_created_again_is_there(asked: Asked) -> None:
    await asked.create()
    await asked.delete()
    await asked.create()
    assert await asked.metadata() == FOUND


async def test_produce_creates_nothing(asked: Asked) -> None:
    assert await asked.produce() == MISSING[0]
    await asked.create()
    await asked.delete()
    assert await asked.produce() == MISSING[0]
    assert await asked.metadata(creates=False) == MISSING
