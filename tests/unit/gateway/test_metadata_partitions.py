"""Metadata made of shared blocks has the same bytes as Metadata encoded one by one."""

from __future__ import annotations

from typing import cast

import pytest

from quafka_gateway.memory import ResponseMemory
from quafka_gateway.responses.encoded_response import EncodedResponse
from quafka_gateway.responses.metadata_partitions import block_of
from quafka_gateway.responses.response_cache import ResponseCache
from quafka_proto.codec import decode, encode
from quafka_proto.message import Buffer
from quafka_proto.schema.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.support.suites import more


def partition(index: int) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        partition_index=index, leader_id=3, leader_epoch=7, replica_nodes=[3], isr_nodes=[3]
    )


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("count", [0, 1, 300, *more([70_000])])
def test_a_block_equals_the_partitions_encoded_one_by_one(version: int, count: int) -> None:
    block = block_of(partition(5), MetadataResponse, version)
    shared = cast("list[MetadataResponsePartition]", block.first(count))
    topic = MetadataResponseTopic(name="t", topic_id=b"i" * 16, partitions=shared)
    made = b"".join(encode(MetadataResponse(topics=[topic], cluster_id="c"), version))
    if count <= 300:
        topic.partitions = [partition(n) for n in range(count)]
        assert made == b"".join(encode(MetadataResponse(topics=[topic], cluster_id="c"), version))
    found = decode(MetadataResponse, version, made).topics[0].partitions
    assert [each.partition_index for each in found] == [*range(count)]
    assert all(each.leader_id == 3 and each.replica_nodes == [3] for each in found)


def test_all_topics_and_alike_versions_share_one_block() -> None:
    blocks = {id(block_of(partition(5), MetadataResponse, version)) for version in range(14)}
    assert len(blocks) == 4
    first = block_of(partition(5), MetadataResponse, 12)
    pieces = [first.first(count).buffers[0] for count in (50_000, 60_000)]
    assert all(isinstance(piece, memoryview) for piece in pieces)
    assert len({id(piece.obj) for piece in pieces if isinstance(piece, memoryview)}) == 1


async def test_responses_are_cached_within_bounds_and_counted() -> None:
    memory = ResponseMemory(1_000).of(1)
    answers = ResponseCache(100, memory)
    made: list[str] = []
    block = memoryview(bytes(10_000))

    async def answer(name: str, size: int, *shared: Buffer) -> EncodedResponse:
        async def make() -> EncodedResponse:
            made.append(name)
            body = [bytes(size), *shared]
            return EncodedResponse(MetadataResponse, body, shared=sum(map(len, shared)))

        return await answers.get(name, make)

    assert (await answer("a", 40)).shared == 40  # from here on the cache holds it
    assert (await answer("b", 50, block)).shared == 10_050
    assert (await answer("a", 40)).shared == 40
    assert (memory.held, made) == (90, ["a", "b"])
    await answer("c", 20)
    assert (memory.held, answers.held) == (60, 60)
    assert (await answer("large", 101)).shared == 0
    await answer("b", 50)
    assert made == ["a", "b", "c", "large", "b"]
