"""Bursts of datagrams through sockets of the system: segmentation offload, errors, full buffers."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from quafka_loop import clock, sockets
from quafka_mesh_ops.transport.udp import UdpSocket, bind_udp

BURSTS = [
    [b"a"],
    [b"a" * 1200] * 3 + [b"b" * 7],
    [b"a" * 1452] * 100,
    [b"a" * 16000] * 9,
    [b"a", b"bb", b"ccc", b"dd", b"dd", b"e", b"ff"],
    [bytes([i]) * (1 + i) for i in range(200)],
    [b"x" * 60000, b"y" * 60000],
]


class Ends:
    """Two UDP sockets; `got`: the datagrams that arrived at the second."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.errors: list[OSError] = []
        self.blamed: list[Any] = []
        self.writable = 0
        self.receiver = UdpSocket(
            bind_udp("127.0.0.1", 0), self._take, lambda: None, self._note_error
        )
        self.sock = SlowSocket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sender = UdpSocket(self.sock, self._take, self._note_writable, self._note_error)

    def _take(self, datagrams: list[bytes], address: Any) -> None:
        self.got += datagrams

    def _note_error(self, error: OSError, address: Any) -> None:
        self.errors.append(error)
        self.blamed.append(address)

    def _note_writable(self) -> None:
        self.writable += 1

    def send(self, datagrams: Sequence[bytes]) -> None:
        self.sender.send([(d, self.receiver.address) for d in datagrams])

    async def until(self, count: int) -> None:
        for _ in range(400):
            if len(self.got) >= count:
                return
            await asyncio.sleep(0.005)
        raise AssertionError(f"only {len(self.got)} of {count} datagrams")


class SlowSocket(socket.socket):
    """Fails the next sends with these errors (0: lets one through)."""

    def fail_next(self, *errors: int) -> None:
        self._errors = list(errors)

    def sendmsg(self, *args: Any) -> int:
        errors = getattr(self, "_errors", [])
        if errors:
            code = errors.pop(0)
            if code:
                raise OSError(code, "injected")
        return super().sendmsg(*args)


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    made = Ends()
    yield made
    made.sender.close()
    made.receiver.close()
    made.receiver.close()


@pytest.mark.parametrize("datagrams", BURSTS)
@pytest.mark.parametrize("offload", [True, False])
async def test_datagrams_keep_their_edges_and_order(
    ends: Ends, datagrams: list[bytes], offload: bool
) -> None:
    if not offload:
        ends.sender._gso = False
    ends.send(datagrams)
    await ends.until(len(datagrams))
    assert ends.got == datagrams


async def test_what_the_kernel_does_not_take_now_is_sent_later(ends: Ends) -> None:
    ends.sock.fail_next(errno.EAGAIN)
    ends.send([b"1" * 100, b"2" * 200])
    assert ends.sender.blocked
    ends.send([b"3"])
    await ends.until(3)
    assert ends.got == [b"1" * 100, b"2" * 200, b"3"]
    assert ends.writable == 1
    assert not ends.sender.blocked


async def test_without_segmentation_offload_it_goes_on_without(ends: Ends) -> None:
    ends.sock.fail_next(errno.EIO)
    ends.send([b"a" * 500] * 5)
    await ends.until(5)
    assert ends.got == [b"a" * 500] * 5
    assert not ends.sender._gso
    ends.got.clear()
    ends.sock.fail_next(0, errno.EAGAIN)
    ends.send([b"b" * 500, b"c" * 500, b"d" * 500])
    await ends.until(3)
    await asyncio.sleep(0.01)
    assert ends.got == [b"b" * 500, b"c" * 500, b"d" * 500]


async def test_path_errors_are_reported_and_cost_only_their_burst(ends: Ends) -> None:
    ends.sock.fail_next(errno.EMSGSIZE)
    ends.send([b"large", b"small"])
    ends.send([b"next"])
    await ends.until(1)
    assert [e.errno for e in ends.errors] == [errno.EMSGSIZE]
    assert ends.got == [b"next"]


async def test_a_port_that_is_closed_is_named_and_costs_others_nothing(ends: Ends) -> None:
    with sockets.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
        gone.bind(("127.0.0.1", 0))
        closed = gone.getsockname()
    to = ends.receiver.address
    ends.sender.send([(b"1", to), (b"x", closed), (b"2", to), (b"x", closed), (b"3", to)])
    await ends.until(3)
    async with asyncio.timeout(20):
        while len(ends.errors) < 2:
            await asyncio.sleep(0.005)
    assert [(e.errno, who) for e, who in zip(ends.errors, ends.blamed, strict=True)] == [
        (errno.ECONNREFUSED, closed)
    ] * 2
    assert ends.got == [b"1", b"2", b"3"]


async def test_a_closed_socket_sends_nothing(ends: Ends) -> None:
    ends.sender.close()
    ends.send([b"x"])
    assert not ends.sender.blocked


class CountingSocket(socket.socket):
    """Counts its reads."""

    reads = 0

    def recvmsg(self, *args: Any) -> Any:
        self.reads += 1
        return super().recvmsg(*args)


async def test_datagrams_that_come_one_by_one_are_read_once_and_many_are_read_together() -> None:
    got: list[list[bytes]] = []
    sock = CountingSocket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    errors: list[OSError] = []
    receiver = UdpSocket(
        sock, lambda some, _: got.append(some), lambda: None, lambda error, _: errors.append(error)
    )
    sender = bind_udp("127.0.0.1", 0)

    async def arrive(count: int) -> None:
        for number in range(count):
            sender.sendto(bytes(1 + number), receiver.address)
        while sum(map(len, got)) < count:
            await asyncio.sleep(0)

    try:
        for _ in range(80):
            await arrive(1)
            got.clear()
        assert sock.reads < 100
        rounds = 20
        for _ in range(rounds):
            await arrive(10)
            assert [len(data) for some in got for data in some] == list(range(1, 11))
            got.clear()
        assert sock.reads < 100 + rounds * 20
    finally:
        receiver.close()
        sender.close()


async def test_a_turn_ends_when_the_data_of_several_senders_has_taken_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(clock, "perf_counter", lambda: now)
    turns: list[list[bytes]] = [[]]

    def handshake(datagrams: list[bytes], _: object) -> None:
        nonlocal now
        turns[-1] += datagrams
        now += 0.002

    receiver = UdpSocket(bind_udp("127.0.0.1", 0), handshake, lambda: None, lambda *_: None)
    senders = [bind_udp("127.0.0.1", 0) for _ in range(20)]
    try:
        for number, sender in enumerate(senders):
            sender.sendto(bytes([number]), receiver.address)
        while sum(map(len, turns)) < len(senders):
            turns.append([])
            await asyncio.sleep(0)
        assert [data[0] for some in turns for data in some] == list(range(20))
        assert max(map(len, turns)) < 6
    finally:
        receiver.close()
        for sender in senders:
            sender.close()
