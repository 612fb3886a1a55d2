"""Fetch sessions (KIP-227) over real processes and a real mesh."""

from __future__ import annotations

import time

import pytest

from quafka_proto.errors import ErrorCode
from quafka_proto.schema.fetch import FetchResponse, ForgottenTopic
from tests.support.admin_calls import grow
from tests.support.fetch_calls import (
    LONG,
    PARTITIONS,
    V,
    create,
    delete,
    delete_records,
    get,
    park,
    part,
    put,
    request_of,
    woken,
)
from tests.support.kafka_calls import metadata, values
from tests.support.raw_client import RawClient


def test_a_session_answers_what_has_changed(
    client: RawClient, other: RawClient, topic: str
) -> None:
    begin = request_of(topic, *(part(n) for n in range(PARTITIONS)), session=(0, 0))
    full = client.call(begin, FetchResponse, V)
    assert full.session_id > 0
    assert len(full.responses[0].partitions) == PARTITIONS
    session = full.session_id
    assert get(client, request_of(topic, session=(session, 1))) == []
    put(client, topic, b"a", partition=2)
    (data,) = get(client, request_of(topic, session=(session, 2)))
    assert (data.partition_index, values(data)) == (2, [b"a"])
    assert get(client, request_of(topic, part(2, 1), session=(session, 3))) == []
    park(client, request_of(topic, session=(session, 4), wait=LONG))
    put(other, topic, b"b", partition=1)
    (data,) = woken(client)
    assert (data.partition_index, values(data)) == (1, [b"b"])
    delete_records(client, topic, 0)
    forget = request_of(topic, session=(session, 5))
    forget.forgotten_topics_data = [ForgottenTopic(topic=topic, partitions=[1])]
    assert get(client, forget) == []
    put(client, topic, b"c", partition=1)
    assert get(client, request_of(topic, session=(session, 6))) == []
    closed = client.call(request_of(topic, session=(session, -1)), FetchResponse, V)
    assert (closed.error_code, closed.session_id) == (0, 0)
    gone = client.call(request_of(topic, session=(session, 7)), FetchResponse, V)
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_finds_a_partition_that_was_not_there(
    client: RawClient, other: RawClient, topic: str
) -> None:
    begin = request_of(topic, part(0), part(PARTITIONS), session=(0, 0))
    full = client.call(begin, FetchResponse, V)
    there, missing = full.responses[0].partitions
    assert (there.error_code, missing.error_code) == (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert grow(other, topic, PARTITIONS + 1) == 0
    put(other, topic, b"new", partition=PARTITIONS)
    (data,) = get(client, request_of(topic, session=(full.session_id, 1)))
    assert (data.partition_index, data.error_code) == (PARTITIONS, 0)
    assert values(data) == [b"new"]


@pytest.mark.parametrize(
    ("session", "error"),
    [
        ((0, 7), ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        ((9, 7), ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        ((9, -2), ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
    ],
)
def test_session_errors_are_at_the_top_level(
    client: RawClient, topic: str, session: tuple[int, int], error: ErrorCode
) -> None:
    answer = client.call(request_of(topic, part(), session=session), FetchResponse, V)
    assert (answer.error_code, answer.session_id, answer.responses) == (error, 0, [])


def test_a_wrong_epoch_is_a_top_level_error(client: RawClient, topic: str) -> None:
    session = client.call(request_of(topic, part(), session=(0, 0)), FetchResponse, V).session_id
    answer = client.call(request_of(topic, session=(session, 2)), FetchResponse, V)
    assert answer.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert get(client, request_of(topic, session=(session, 1))) == []


def test_names_in_a_session_of_topic_ids_are_an_error(client: RawClient, topic: str) -> None:
    topic_id = metadata(client, topic).topics[0].topic_id
    begin = request_of(topic_id, part(), session=(0, 0))
    session = client.call(begin, FetchResponse, 13).session_id
    answer = client.call(request_of(topic, session=(session, 1)), FetchResponse, 12)
    assert answer.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_session_starves_no_partition_under_a_small_max_bytes(
    client: RawClient, topic: str
) -> None:
    for _ in range(3):
        for partition in range(PARTITIONS):
            put(client, topic, b"x" * 500, partition=partition)
    begin = request_of(topic, *(part(n) for n in range(PARTITIONS)), session=(0, 0), max_bytes=1)
    answer = client.call(begin, FetchResponse, V)
    turns = [d.partition_index for d in answer.responses[0].partitions if d.records]
    for epoch in range(1, 8):
        turn = get(client, request_of(topic, session=(answer.session_id, epoch), max_bytes=1))
        turns += [data.partition_index for data in turn]
    # The first answer began the session, whose order is still the client's (as in Kafka).
    assert turns == [0, 0, 1, 2, 3, 0, 1, 2]


def test_a_full_fetch_is_read_in_the_order_of_the_request(client: RawClient, topic: str) -> None:
    for partition in range(PARTITIONS):
        put(client, topic, b"x" * 500, partition=partition)
    for first in (3, 1):
        order = [first, *(n for n in range(PARTITIONS) if n != first)]
        answer = get(client, request_of(topic, *map(part, order), max_bytes=1))
        assert [data.partition_index for data in answer] == order
        assert [len(values(data)) for data in answer] == [1, 0, 0, 0]


def test_a_topic_deleted_in_a_session_is_an_error_until_it_is_forgotten(
    client: RawClient, topic: str
) -> None:
    topic_id = metadata(client, topic).topics[0].topic_id
    begin = request_of(topic_id, part(), session=(0, 0))
    session = client.call(begin, FetchResponse, 13).session_id
    delete(client, topic)
    create(client, topic)
    for epoch in (1, 2):
        (data,) = get(client, request_of(topic_id, session=(session, epoch)), 13)
        assert data.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    new_id = metadata(client, topic).topics[0].topic_id
    replace = request_of(new_id, part(), session=(session, 3))
    replace.forgotten_topics_data = [ForgottenTopic(topic_id=topic_id, partitions=[0])]
    (data,) = get(client, replace, 13)
    assert (data.error_code, data.high_watermark) == (0, 0)


@pytest.mark.long
def test_closing_a_session_does_not_wait(client: RawClient, topic: str) -> None:
    """Java's consumers close theirs with an empty fetch that has their usual max_wait_ms."""
    session = client.call(request_of(topic, part(), session=(0, 0)), FetchResponse, V).session_id
    began = time.monotonic()
    assert get(client, request_of(topic, session=(session, -1), wait=LONG)) == []
    assert time.monotonic() - began < 5
