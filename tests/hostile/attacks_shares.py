"""Share groups: many partitions, scattered and absurd acknowledgements, sessions without end."""

from __future__ import annotations

from quafka_proto.errors import ErrorCode
from quafka_proto.schema.share_fetch import (
    AcknowledgementBatch,
    ShareFetchPartition,
    ShareFetchPartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopic,
)
from tests.hostile.arena import Arena
from tests.hostile.catalogue import attack
from tests.support.kafka_calls import metadata, produce_batch
from tests.support.raw_client import RawClient
from tests.support.share_calls import ACCEPT, RELEASE, ShareMember, acquired
from tests.unit.broker.tools import batch_of

_NOWHERE = bytes([9] * 16)


def _member(arena: Arena, client: RawClient, topic: str, member: str = "m") -> ShareMember:
    return ShareMember(
        client, arena.name("share"), metadata(client, topic).topics[0].topic_id, member
    )


@attack("a share group reads 3,000 partitions, and 20,000 that are not there",
        part_of_tests=True)  # fmt: skip
def many_partitions(arena: Arena) -> None:
    topic = arena.topic(partitions=3_000)
    with arena.connect() as client:
        member = _member(arena, client, topic)
        assert member.fetch(*range(3_000)) == []
        assert member.fetch() == []
        member.topic_id, member.epoch = _NOWHERE, 0
        errors = {part.error_code for part in member.fetch(*range(20_000))}
        assert errors == {ErrorCode.UNKNOWN_TOPIC_ID}


@attack("every other record of full windows is released, one by one, and again",
        part_of_tests=True)  # fmt: skip
def scattered(arena: Arena) -> None:
    topic = arena.topic(partitions=8)
    with arena.connect() as client:
        member = _member(arena, client, topic)
        member.fetch(*range(8))
        for _ in range(4):
            produce_batch(client, topic, batch_of(*[b"v"] * 500))
        held = [at for part in member.fetch(max_records=2_000) for at in _offsets(part)]
        assert held
        for _ in range(3):
            acks = [(at, at, [RELEASE]) for at in held if at % 2]
            parts = member.fetch(acks={0: acks}, max_records=2_000)
            assert not any(part.acknowledge_error_code for part in parts)
        assert member.acknowledge({0: [(held[0], held[0], [ACCEPT])]}) == [0]


def _offsets(part: ShareFetchPartitionData) -> list[int]:
    ranges = acquired(part)
    return [at for first, last, _ in ranges for at in range(first, last + 1)]


@attack(
    "acknowledgements name more records, and more batches, than a window has",
    part_of_tests=True,
)
def absurd(arena: Arena) -> None:
    topic = arena.topic()
    with arena.connect() as client:
        member = _member(arena, client, topic)
        member.fetch(0)
        many = range(50_000)
        wrong = ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST
        for batches in (
            [(0, len(many) - 1, bytes([ACCEPT]) * len(many))],
            [(0, (1 << 63) - 1, [ACCEPT])],
            [(at, at, [ACCEPT]) for at in many],
            [(5, 3, [ACCEPT]), (-7, -7, [ACCEPT]), (0, 0, [-128])],
        ):
            (code,) = member.acknowledge({0: batches})
            assert code in wrong


@attack("one connection begins 20,000 share sessions, and goes")
def sessions(arena: Arena) -> None:
    group = arena.name("share")
    with arena.connect() as client:
        codes: set[int] = set()
        for number in range(0, 20_000, 200):
            for each in range(number, number + 200):
                client.send(
                    ShareFetchRequest(
                        group_id=group,
                        member_id=f"member {each}",
                        max_records=1,
                        max_bytes=1,
                        topics=[ShareFetchTopic(_NOWHERE, [ShareFetchPartition(0)])],
                    ),
                    2,
                )
            for _ in range(200):
                codes.add(client.receive(ShareFetchResponse, 2)[1].error_code)
        assert codes == {0, ErrorCode.SHARE_SESSION_LIMIT_REACHED}


@attack("an initial share fetch acknowledges what it never had", part_of_tests=True)
def initial(arena: Arena) -> None:
    with arena.connect() as client:
        parts = [ShareFetchPartition(0, [AcknowledgementBatch(0, 0, [ACCEPT])])]
        request = ShareFetchRequest(
            group_id="g", member_id="m", topics=[ShareFetchTopic(_NOWHERE, parts)]
        )
        answer = client.call(request, ShareFetchResponse, 1)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
