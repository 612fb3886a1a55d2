"""The timer of a connection: never late, and not replaced with every packet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from quafka_mesh_ops.transport.aioquic_adapter.quic import MeshQuic
from quafka_mesh_ops.transport.connection import QuicSocketConnection

_TICK = 0.001


class Timer:
    """A timer of `Clock`."""

    def __init__(self, when: float, callback: Callable[[], object]) -> None:
        self._when = when
        self.callback: Callable[[], object] | None = callback

    def when(self) -> float:
        return self._when

    def cancel(self) -> None:
        self.callback = None


class Clock:
    """The part of an event loop that a connection's timer uses."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], object]) -> Timer:
        self.timers.append(Timer(when, callback))
        return self.timers[-1]

    def advance(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now += _TICK
            for timer in self.timers:
                if timer.callback is not None and timer.when() <= self.now:
                    callback, timer.callback = timer.callback, None
                    callback()


class Quic:
    """A connection that always has the next deadline, and nothing to send."""

    was_reset = is_closed = False
    deadline: float | None = None

    def __init__(self) -> None:
        self.handled: list[float] = []

    def get_timer(self) -> float | None:
        return self.deadline

    def handle_timer(self, now: float) -> None:
        self.handled.append(now)
        self.deadline = None

    def receive_datagrams(self, *_: object) -> None:
        """Nothing."""

    def next_event(self) -> None:
        """Nothing."""

    def holds_unordered(self, _: int) -> bool:
        return False

    def is_quiet(self, _: float) -> bool:
        return True

    def datagrams_to_send(self, _: float) -> list[object]:
        return []


class Socket:
    """Never blocked."""

    blocked = False


async def timed() -> tuple[QuicSocketConnection, Quic, Clock]:
    quic, clock = Quic(), Clock()
    nobody = cast(Any, None)
    connection = QuicSocketConnection(
        cast(MeshQuic, quic), cast(Any, Socket()), lambda _: nobody, nobody
    )
    connection._loop = cast(Any, clock)
    return connection, quic, clock


async def test_a_busy_connection_arms_one_timer_in_ten_milliseconds() -> None:
    connection, quic, clock = await timed()
    for number in range(500):
        # An op every 2 ms: its answer must be acknowledged within 10 ms, the next op within 27 ms.
        quic.deadline = clock.now + (0.010 if number % 2 else 0.027)
        connection.receive([b""], None)
        clock.advance(_TICK)
    assert quic.handled == []
    assert len(clock.timers) <= 55  # in half a second


async def test_no_deadline_is_missed_after_traffic() -> None:
    connection, quic, clock = await timed()
    for number in range(200):
        quic.deadline = due = clock.now + (0.010 if number % 3 else 0.027)
        connection.receive([b""], None)
        if number % 20 == 19:
            clock.advance(0.04)
            (handled,) = quic.handled
            assert due - _TICK <= handled <= due + 2 * _TICK
            quic.handled.clear()
        else:
            clock.advance(_TICK)


async def test_an_idle_connection_sleeps_until_its_deadline() -> None:
    connection, quic, clock = await timed()
    quic.deadline = clock.now + 0.010
    connection.receive([b""], None)
    quic.deadline = clock.now + 5.0
    clock.advance(4.9)
    assert len(clock.timers) <= 3
    assert quic.handled == []
    clock.advance(0.2)
    assert len(quic.handled) == 1
