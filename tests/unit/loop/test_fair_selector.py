"""Sockets of parties: few of each are reported at a time, and those of others at once."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from selectors import EVENT_READ, EVENT_WRITE

import pytest

from quafka_loop.fair_selector import MOST, FairSelector, selector_of
from quafka_telemetry.loop_turns import LoopTurns

FLOOD, MODEST = "flood", "modest"


class Sockets:
    """Pairs of sockets; the first ones are registered."""

    def __init__(self, stack: ExitStack) -> None:
        self.selector = stack.enter_context(FairSelector())
        self._stack = stack
        self.peers: dict[int, socket.socket] = {}

    def add(self, party: str | None, *, joins_first: bool = False) -> int:
        ours, theirs = socket.socketpair()
        self._stack.enter_context(ours)
        self._stack.enter_context(theirs)
        fd = ours.fileno()
        if party and joins_first:
            self.selector.join(fd, party)
        self.selector.register(fd, EVENT_READ, f"data of {fd}")
        if party and not joins_first:
            self.selector.join(fd, party)
        self.peers[fd] = theirs
        return fd

    def ready(self) -> list[int]:
        found = self.selector.select(0)
        assert all(key.data == f"data of {key.fd}" for key, _ in found)
        return [key.fd for key, _ in found]


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    with ExitStack() as stack:
        yield Sockets(stack)


@pytest.mark.parametrize("joins_first", [False, True])
def test_few_of_a_party_are_reported_and_each_in_its_turn(
    sockets: Sockets, joins_first: bool
) -> None:
    flood = [sockets.add(FLOOD, joins_first=joins_first) for _ in range(4 * MOST)]
    modest, nobodys = sockets.add(MODEST), sockets.add(None)
    for fd in (*flood, modest, nobodys):
        sockets.peers[fd].send(b"x")
    seen: list[int] = []
    for _ in range(4):
        found = sockets.ready()
        assert found[:2] == [nobodys, modest]  # who has little to read comes first
        assert len(found) == 2 + MOST
        for fd in found[2:]:
            os.read(fd, 1)
        seen += found[2:]
    assert sorted(seen) == sorted(flood)


def test_a_party_alone_is_read_as_a_whole(sockets: Sockets) -> None:
    flood = [sockets.add(FLOOD) for _ in range(2 * MOST)]
    for fd in flood:
        sockets.peers[fd].send(b"x")
    assert sorted(sockets.ready()) == sorted(flood)


def test_nothing_of_a_party_is_reported_while_it_is_held_back(sockets: Sockets) -> None:
    flood, modest = sockets.add(FLOOD), sockets.add(MODEST)
    for fd in (flood, modest):
        sockets.peers[fd].send(b"x")
    held_back = {FLOOD}
    sockets.selector.held_back = held_back
    assert sockets.ready() == [modest]
    held_back.clear()
    assert sorted(sockets.ready()) == sorted([flood, modest])


def test_a_socket_of_a_party_is_as_any_other_to_the_loop(sockets: Sockets) -> None:
    selector, fd, other = sockets.selector, sockets.add(FLOOD), sockets.add(None)
    assert selector.get_key(fd).events == EVENT_READ
    selector.modify(fd, EVENT_READ | EVENT_WRITE, f"data of {fd}")
    assert selector.select(0)[0][1] == EVENT_WRITE
    assert {fd, other} <= set(selector.get_map())
    selector.unregister(fd)  # as a transport does that pauses
    with pytest.raises(KeyError):
        selector.get_key(fd)
    assert selector.get_map().get(fd) is None
    sockets.peers[fd].send(b"x")
    assert sockets.ready() == []
    selector.register(fd, EVENT_READ, f"data of {fd}")
    assert sockets.ready() == [fd]


def test_a_socket_that_leaves_is_reported_as_before(sockets: Sockets) -> None:
    fd = sockets.add(FLOOD)
    sockets.peers[fd].send(b"x")
    sockets.selector.leave(fd)
    assert sockets.ready() == [fd]
    sockets.selector.unregister(fd)
    assert not sockets.selector.get_map()  # nothing is left of the party
    sockets.selector.leave(fd)


def test_connections_of_a_loop_join() -> None:
    async def run() -> bytes:
        loop = asyncio.get_running_loop()
        selector = selector_of(loop)
        assert selector is not None
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        fd = ours.fileno()
        selector.join(fd, FLOOD)
        theirs.send(b"data")
        theirs.close()
        data = await reader.read()
        selector.leave(fd)
        writer.close()
        await writer.wait_closed()
        return data

    with asyncio.Runner(loop_factory=LoopTurns().new_loop) as runner:
        assert runner.run(run()) == b"data"
