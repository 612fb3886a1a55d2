"""What clients cost that do nothing, or next to nothing."""

from __future__ import annotations

import asyncio
import select
import socket
import time
from contextlib import ExitStack
from functools import partial

from quafka_proto.headers import encode_request
from quafka_proto.schema.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from quafka_proto.schema.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.bench.peers import Server
from tests.bench.rows.backlog import backlog
from tests.bench.rows.heartbeats import EVERY_SECONDS
from tests.bench.rows.row import OURS, THEIRS, Figures, Row
from tests.support.kafka_calls import create_topic
from tests.support.raw_client import RawClient
from tests.support.raw_group import Connection, RawMember, find_coordinator, members

PARKED = 1_000
IDLE_CONNECTIONS, IDLE_GROUPS = 1_000, 100
PARTITIONS, POLLS = 1_000, 200
VERSION = 12
_ANYBODY = (*OURS, THEIRS, "tansu")
_LEAST_SECONDS = 10.0
"""CPU time is counted in ticks of 10 ms."""


# --- consumers at the tail -------------------------------------------------------------------


def _parked(server: Server, seconds: float, _round: int) -> Figures:
    """Percent of a core, and microseconds per poll."""
    part = FetchPartition(partition=0, fetch_offset=1_000, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic="tail", partitions=[part])],
    )
    frame = b"".join(encode_request(1, "idle", request, VERSION))
    with ExitStack() as stack:
        by_fd: dict[int, socket.socket] = {}
        poller = select.epoll()
        for _ in range(PARKED):
            opened = stack.enter_context(socket.create_connection(server.address))
            by_fd[opened.fileno()] = opened
            poller.register(opened.fileno(), select.EPOLLIN)
            opened.sendall(frame)

        def poll(until: float) -> int:
            answered = 0
            while time.monotonic() < until:
                for fd, _ in poller.poll(0.1):
                    by_fd[fd].recv(1 << 16)
                    by_fd[fd].sendall(frame)
                    answered += 1
            return answered

        poll(time.monotonic() + 2)
        before, began = server.cpu_seconds(), time.monotonic()
        answered = poll(began + max(seconds, _LEAST_SECONDS))
        used, took = server.cpu_seconds() - before, time.monotonic() - began
        return used / took * 100, used / max(1, answered) * 1e6


# --- idle connections and groups ---------------------------------------------------------------


def _idling(server: Server, seconds: float, turn: int) -> Figures:
    return asyncio.run(_idle_shares(server, max(seconds, _LEAST_SECONDS), turn))


async def _idle_shares(server: Server, seconds: float, turn: int) -> tuple[float, float]:
    """Percent of a core: in silence, and while the members send heartbeats.

    Each group has one member that need not beat yet, and one offset.
    """
    groups = [f"idle-{turn}-{number}" for number in range(IDLE_GROUPS)]
    idlers: list[RawMember] = []
    others: list[Connection] = []
    try:
        idlers = await members(server.address, groups)
        await find_coordinator(idlers[0].connection, groups[0])
        # Together: Kafka waits three seconds for further members of each new group.
        await asyncio.gather(*map(_settle, idlers))
        rest = IDLE_CONNECTIONS - IDLE_GROUPS
        others = [await Connection.open(server.address) for _ in range(rest)]
        await asyncio.sleep(3)  # timers of what has just been done
        silent = await _share(server, seconds)
        end = time.monotonic() + EVERY_SECONDS + seconds
        beats = [_beat(each, n / len(idlers), end) for n, each in enumerate(idlers)]
        beating = asyncio.gather(*beats)
        await asyncio.sleep(EVERY_SECONDS)
        busy = await _share(server, seconds)
        await beating
        return silent, busy
    finally:
        for member in idlers:
            await member.leave()
            member.connection.close()
        for connection in others:
            connection.close()


async def _share(server: Server, seconds: float) -> float:
    before, began = server.cpu_seconds(), time.monotonic()
    await asyncio.sleep(seconds)
    return (server.cpu_seconds() - before) / (time.monotonic() - began) * 100


async def _beat(member: RawMember, part: float, end: float) -> None:
    """Send a heartbeat each EVERY_SECONDS until `end`, the first one after this part of them."""
    due = time.monotonic() + part * EVERY_SECONDS
    while due < end:
        await asyncio.sleep(due - time.monotonic())
        assert await member.heartbeat() == 0
        due += EVERY_SECONDS


async def _settle(member: RawMember) -> None:
    member.session_ms = 300_000
    await member.settle()
    assert await member.commit("tail", [1]) == 0


# --- wide fetch sessions ------------------------------------------------------------------------


def _prepare_wide(server: Server) -> None:
    with RawClient(server.address, timeout=30) as client:
        create_topic(client, "wide", PARTITIONS)
        _until_led(client)


def _until_led(client: RawClient) -> None:
    """Kafka answers before the partitions have a leader."""
    give_up = time.monotonic() + 30
    while time.monotonic() < give_up:
        request = MetadataRequest(topics=[MetadataRequestTopic(name="wide")])
        (topic,) = client.call(request, MetadataResponse, 9).topics
        if len(topic.partitions) == PARTITIONS and not any(p.error_code for p in topic.partitions):
            time.sleep(1)
            return
        time.sleep(0.2)
    raise RuntimeError("its partitions get no leader")


def _session_polls(server: Server, _seconds: float, _round: int) -> Figures:
    """Microseconds of CPU and of time for an idle poll, and the bytes of request and response."""
    with RawClient(server.address, timeout=30) as client:
        frames = _polls(client)
        before, began, down = server.cpu_seconds(), time.perf_counter(), 0
        for frame in frames:
            client.socket.sendall(frame)
            down = len(client.receive_frame()) + 4
        took, used = time.perf_counter() - began, server.cpu_seconds() - before
        return used / POLLS * 1e6, took / POLLS * 1e6, len(frames[0]) + down


def _polls(client: RawClient) -> list[bytes]:
    """Open a session of a thousand partitions; the requests that poll it."""
    everything = [
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1 << 20)
        for number in range(PARTITIONS)
    ]
    full = FetchRequest(
        max_bytes=1 << 20, session_epoch=0,
        topics=[FetchTopic(topic="wide", partitions=everything)],
    )  # fmt: skip
    session_id = client.call(full, FetchResponse, VERSION).session_id
    if not session_id:
        raise RuntimeError("it keeps no fetch sessions")
    requests = (
        FetchRequest(max_bytes=1 << 20, session_id=session_id, session_epoch=epoch)
        for epoch in range(1, POLLS + 1)
    )
    return [b"".join(encode_request(1, "idle", each, VERSION)) for each in requests]


ROWS = (
    Row(
        "idle", f"{PARKED:,} consumers parked at one tail, max wait 500 ms",
        ("% of a core", "CPU µs a poll"), _parked, partial(backlog, topic="tail", mb=1),
        fsync_matters=False, servers=_ANYBODY,
    ),
    Row(
        "idle", f"{IDLE_CONNECTIONS:,} idle connections, {IDLE_GROUPS} idle groups",
        ("% of a core silent", f"% with a heartbeat each {EVERY_SECONDS:g} s"), _idling,
        partial(backlog, topic="tail", mb=1), fsync_matters=False,
    ),
    Row(
        "idle", f"idle poll of a session of {PARTITIONS:,} partitions",
        ("CPU µs", "µs", "bytes both ways"), _session_polls, _prepare_wide,
        fsync_matters=False, servers=_ANYBODY,
    ),
)  # fmt: skip
