"""The consumer group protocol (KIP-848): subscriptions, patterns and partitions without measure."""

from __future__ import annotations

import asyncio
from typing import Any

from quafka_proto.errors import ErrorCode
from quafka_proto.schema.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupTopicPartitions,
)
from tests.hostile.arena import Arena, run
from tests.hostile.catalogue import attack
from tests.support.kafka_calls import create_topic
from tests.support.raw_group import Connection

_TOPICS = 40_000
_PARTITIONS = 60_000
"""As many as the mesh takes in one op."""


def _join(number: int, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    values: dict[str, Any] = {
        "group_id": f"without measure {number}", "member_id": "m", "member_epoch": 0,
        "rebalance_timeout_ms": 60_000, "topic_partitions": [], "subscribed_topic_names": ["none"],
    }  # fmt: skip
    return ConsumerGroupHeartbeatRequest(**{**values, **fields})


async def _send(arena: Arena, *requests: tuple[ConsumerGroupHeartbeatRequest, ErrorCode]) -> None:
    connection = await Connection.open(arena.address)
    async with asyncio.timeout(60):
        for request, error in requests:
            answer = await connection.call(request, ConsumerGroupHeartbeatResponse, 1)
            assert answer.error_code == error, answer
    connection.close()


@attack("members subscribe to forty thousand topics each", "24", part_of_tests=True)
def many_topics(arena: Arena) -> None:
    names = [f"topic-{number}" for number in range(_TOPICS)]
    join = _join(1, subscribed_topic_names=names)
    run(_send(arena, *[(join, ErrorCode.INVALID_REQUEST)] * 5))


@attack("patterns that take other engines for ever", "24", part_of_tests=True)
def patterns(arena: Arena) -> None:
    wrong = ErrorCode.INVALID_REGULAR_EXPRESSION
    sent = [
        (_join(2, subscribed_topic_names=None, subscribed_topic_regex=pattern), error)
        for pattern, error in (
            ("(a+)+$" * 50, ErrorCode.NONE), ("(" * 10_000, wrong), ("a{1000}{1000}", wrong),
            ("(.*)(.*)(.*)(.*)(.*)x", ErrorCode.NONE),
        )
    ]  # fmt: skip
    run(_send(arena, *sent))


@attack("a member reports sixty thousand partitions", "24", part_of_tests=True)
def many_partitions(arena: Arena) -> None:
    own = [
        ConsumerGroupTopicPartitions(topic_id=bytes(15) + b"x", partitions=list(range(_PARTITIONS)))
    ]
    stay = _join(3, member_epoch=2, topic_partitions=own, subscribed_topic_names=None)
    joins = (_join(3), ErrorCode.NONE)
    run(_send(arena, joins, *[(stay, ErrorCode.NONE)] * 5))


@attack("two hundred members join and leave one group, three times", "24", part_of_tests=False)
def storm(arena: Arena) -> None:
    async def member(number: int) -> None:
        join = _join(4, member_id=f"m-{number}")
        leave = _join(4, member_id=f"m-{number}", member_epoch=-1)
        await _send(arena, *[(join, ErrorCode.NONE), (leave, ErrorCode.NONE)] * 3)

    async def every() -> None:
        await asyncio.gather(*map(member, range(200)))

    run(every())


_MATCHED = 2_000


@attack(
    "two hundred members join one group with long patterns and thousands of names, and leave",
    "24",
    part_of_tests=False,
)
def subscriptions(arena: Arena) -> None:
    """Each pattern and each list of names is another one, and matches most topics."""
    names = [f"subscribed-{number}" for number in range(_MATCHED)]
    with arena.connect(120) as client:
        for at in range(0, _MATCHED, 500):
            for name in names[at : at + 500]:
                create_topic(client, name, 1)

    async def member(number: int) -> None:
        pattern = "|".join([f"subscribed-{number}[0-9a-f]{{{n}}}" for n in range(1, 60)])
        some = [name for at, name in enumerate(names) if at % 200 != number]
        fields: dict[str, Any] = {"member_id": f"m-{number}"}
        if number % 2:
            fields |= {
                "subscribed_topic_names": None, "subscribed_topic_regex": f"{pattern}|subscribed-.*"
            }  # fmt: skip
        else:
            fields["subscribed_topic_names"] = some
        connection = await Connection.open(arena.address)
        async with asyncio.timeout(150):
            for _ in range(2):
                answer = await _answer(connection, _join(5, **fields))
                for _ in range(3):
                    if not answer.error_code:
                        stay = _join(
                            5, member_id=f"m-{number}", member_epoch=answer.member_epoch,
                            subscribed_topic_names=None,
                        )  # fmt: skip
                        await _answer(connection, stay)
                await _answer(connection, _join(5, member_id=f"m-{number}", member_epoch=-1))
        connection.close()

    async def every() -> None:
        await asyncio.gather(*map(member, range(200)))

    run(every())


async def _answer(
    connection: Connection, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    answer = await connection.call(request, ConsumerGroupHeartbeatResponse, 1)
    allowed = (
        ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR, ErrorCode.GROUP_ID_NOT_FOUND,
    )  # fmt: skip
    assert answer.error_code in allowed, answer
    return answer
