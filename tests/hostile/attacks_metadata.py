"""Small questions with long answers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from quafka_proto.schema.metadata import MetadataRequest, MetadataResponse
from quafka_proto.schema.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from tests.hostile.arena import Arena
from tests.hostile.catalogue import attack

_WHY = "the topics that were made are held, though deleted: some 400 bytes a partition"


def _create(arena: Arena, count: int, partitions: int) -> list[str]:
    """Ask for topics; those that were made."""
    names = [arena.name() for _ in range(count)]
    topics = [
        CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names
    ]
    with arena.connect() as client:
        request = CreateTopicsRequest(topics=topics, timeout_ms=60_000)
        answer = client.call(request, CreateTopicsResponse, 5)
    return [one.name or "" for one in answer.topics if not one.error_code]


def _delete(arena: Arena, names: list[str]) -> None:
    with arena.connect() as client:
        request = DeleteTopicsRequest(topic_names=names, timeout_ms=60_000)
        client.call(request, DeleteTopicsResponse, 5)


def _ask(arena: Arena, count: int) -> None:
    """Pipeline so many Metadata requests for everything."""
    with arena.connect(100) as client:
        for _ in range(count):
            client.send(MetadataRequest(topics=None), 12)
        for _ in range(count):
            client.receive(MetadataResponse, 12)


@attack("a million partitions are asked for; then Metadata, eight times", "8", growth_mib=512,
        why=_WHY, part_of_tests=True)  # fmt: skip
def amplified(arena: Arena) -> None:
    made = [name for _ in range(10) for name in _create(arena, 1, 100_000)]
    _ask(arena, 8)
    _delete(arena, made)


@attack("eight connections ask eight times for the metadata of 100,000 partitions", "8",
        growth_mib=512, why=_WHY)  # fmt: skip
def many_ask(arena: Arena) -> None:
    made = [name for _ in range(10) for name in _create(arena, 1, 10_000)]
    with ThreadPoolExecutor(8) as askers:
        for asked in [askers.submit(_ask, arena, 8) for _ in range(8)]:
            asked.result()
    _delete(arena, made)


@attack("five thousand topics are created and deleted", growth_mib=256, why=_WHY)
def many_topics(arena: Arena) -> None:
    made = _create(arena, 5_000, 1)
    _ask(arena, 8)
    _delete(arena, made)
