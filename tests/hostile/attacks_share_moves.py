"""A member of a share group at two gateways: its old connection ends while it uses its new one."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from quafka_proto.errors import ErrorCode
from tests.hostile.arena import Arena
from tests.hostile.catalogue import attack
from tests.support.kafka_calls import metadata, produce_batch
from tests.support.raw_client import RawClient
from tests.support.share_calls import ACCEPT, RELEASE, ShareMember, acquired
from tests.unit.broker.tools import batch_of

_LISTENER = "PLAINTEXT"
_LOCKS = 4_000
_PER_BATCH = 500
_MOVES = 4
_ENDS = 1.0
"""Seconds until the end of a connection has reached the broker."""


def _fill(client: RawClient, topic: str) -> None:
    """Produce as many records as a window has."""
    for _ in range(_LOCKS // _PER_BATCH):
        produce_batch(client, topic, batch_of(*[b"v"] * _PER_BATCH))


def _taken(member: ShareMember, most: int) -> int:
    """Acquire so many records of partition 0, as far as there are; how many that were."""
    count = 0
    while found := sum(_sizes(member, most - count)):
        count += found
        if count >= most:
            break
    return count


def _sizes(member: ShareMember, most: int) -> list[int]:
    parts = member.fetch(*(() if member.epoch else (0,)), max_records=most, exact=1)
    return [last - first + 1 for part in parts for first, last, _ in acquired(part)]


@attack("a member of a share group moves between gateways, and its old connection ends", "33",
        part_of_tests=True, of_clients=False)  # fmt: skip
def moves(arena: Arena) -> None:
    """What it has acquired by its new connection stays with it."""
    group = arena.name("share")
    with arena.another_gateway() as gateway, arena.connect() as client, ExitStack() as opened:
        topic = arena.topic()
        topic_id = metadata(client, topic).topics[0].topic_id
        first = ShareMember(client, group, topic_id, "first")
        first.fetch(0)
        _fill(client, topic)
        first.acknowledge({}, epoch=-1)
        old = ShareMember(arena.connect(), group, topic_id)
        for number in range(_MOVES):
            _start(old)
            address = arena.address if number % 2 else gateway.address_of(_LISTENER)
            new = ShareMember(opened.enter_context(RawClient(address)), group, topic_id)
            held = _start(new)
            old.client.socket.close()
            time.sleep(_ENDS)
            other = ShareMember(client, group, topic_id, f"other-{number}")
            theirs = {at for first, last in _start(other) for at in range(first, last + 1)}
            assert not theirs & {at for first, last in held for at in range(first, last + 1)}
            (code,) = new.acknowledge({0: [(first, last, [ACCEPT]) for first, last in held]})
            assert code == 0, ErrorCode(code).name
            other.acknowledge({}, epoch=-1)
            old = new


def _start(member: ShareMember) -> list[tuple[int, int]]:
    """Acquire ten records; their ranges."""
    parts = member.fetch(*(() if member.epoch else (0,)), max_records=10, exact=1)
    return [(first, last) for part in parts for first, last, _ in acquired(part)]


@attack("4,000 batches are acknowledged while the member's old connection ends", "33",
        part_of_tests=True, of_clients=False,
        broker=("--group-share-partition-max-record-locks", str(_LOCKS)))  # fmt: skip
def acknowledged(arena: Arena) -> None:
    """All of them, or none."""
    with arena.another_gateway() as gateway, ThreadPoolExecutor(1) as ending:
        for number in range(_MOVES):
            topic, group = arena.topic(), arena.name("share")
            with arena.connect() as client, RawClient(gateway.address_of(_LISTENER)) as new:
                old = ShareMember(client, group, metadata(client, topic).topics[0].topic_id)
                old.fetch(0)
                _fill(client, topic)
                moved = ShareMember(new, group, old.topic_id)
                assert _taken(moved, _LOCKS) == _LOCKS
                ended = ending.submit(_end, old, number * 0.01)
                kinds = (ACCEPT, RELEASE)
                (code,) = moved.acknowledge(
                    {0: [(at, at, [kinds[at % 2]]) for at in range(_LOCKS)]}
                )
                ended.result()
                time.sleep(_ENDS)
                moved.acknowledge({}, epoch=-1)
                left = _taken(ShareMember(new, group, old.topic_id, "other"), _LOCKS)
                wanted = _LOCKS if code else _LOCKS // 2
                assert left == wanted, f"error {code}, and {left} of {_LOCKS} records are left"


def _end(member: ShareMember, seconds: float) -> None:
    time.sleep(seconds)
    member.client.socket.close()
