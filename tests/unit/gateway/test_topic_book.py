"""The topics that the gateway has seen: by broker, name and id."""

from __future__ import annotations

import asyncio

import pytest

from quafka_gateway.cluster import topic_book
from quafka_gateway.cluster.topic_book import TopicBook
from quafka_mesh_ops.ops.topics import TopicDescription

A, B = TopicDescription("a", b"id of a", 1), TopicDescription("b", b"id of b", 2)


def test_a_topic_is_found_by_name_and_by_id() -> None:
    book = TopicBook(2)
    book.add(0, A)
    book.add(1, B)
    assert (book.named(0, "a"), book.named(1, "a"), book.named(1, "b")) == (A, None, B)
    assert (book.by_id(b"id of b"), book.by_id(b"?")) == (B, None)
    assert (book.broker_of(b"id of a"), book.broker_of(b"id of b")) == (0, 1)
    assert book.broker_of(b"?") is None
    assert (book.all_of(0), book.all_of(1)) == ([A], [B])


def test_a_new_topic_with_the_name_replaces_the_old_one() -> None:
    book = TopicBook(1)
    book.add(0, A)
    again = TopicDescription("a", b"new id", 3)
    book.add(0, again)
    assert book.all_of(0) == [again]
    assert (book.by_id(b"id of a"), book.by_id(b"new id")) == (None, again)


def test_topics_are_removed_by_name_and_by_id() -> None:
    book = TopicBook(2)
    book.add(0, A)
    book.add(0, B)
    book.remove(1, "a")
    book.remove_id(1, b"id of b")
    book.remove(0, "?")
    book.remove_id(0, b"?")
    assert book.all_of(0) == [A, B]
    book.remove(0, "a")
    book.remove_id(0, b"id of b")
    assert book.all_of(0) == []
    assert (book.by_id(b"id of a"), book.by_id(b"id of b")) == (None, None)


async def test_a_broker_s_topics_are_replaced_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_book, "_TOPICS_PER_SLICE", 1)
    book = TopicBook(2)
    book.add(0, A)
    book.add(1, B)
    new = [TopicDescription(f"t{number}", b"%d" % number, 1) for number in range(5)]
    replacing = asyncio.create_task(book.replace(0, new))
    seen: list[int] = []
    while not replacing.done():
        seen.append(len(book.all_of(0)))
        await asyncio.sleep(0)
    assert len(seen) > 1
    assert set(seen) == {1}
    assert (book.all_of(0), book.all_of(1)) == (new, [B])
    assert book.by_id(b"id of a") is None
    assert book.broker_of(b"3") == 0
