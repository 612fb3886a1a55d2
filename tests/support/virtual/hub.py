"""The virtual clock, and the fibers that run on it.

A *fiber* is a greenlet: an event loop, a thread, or the main program. All fibers run in one thread
of the operating system, one at a time. A fiber runs until it blocks: an event loop without ready
callbacks, a thread that waits for a lock or sleeps. Then the hub continues another fiber that is
ready. If none is, the clock jumps to the next timer: nothing else could happen before.

With a `Random`, fibers that are ready at the same time continue in an order that it chooses, and so
do timers of the same moment. Without, both are first in, first out.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

EPOCH = 1_767_225_600.0
"""What the wall clock shows when a hub begins: 2026-01-01, 00:00 UTC."""
BEGIN = 1000.0
"""What the monotonic clock shows when a hub begins."""
_VAIN_TURNS, _TURN_SECONDS = 100, 1e-5
"""A loop that polls without end, as by `asyncio.sleep(0)`, takes this long for as many turns."""


class NothingLeftError(RuntimeError):
    """All fibers wait, and no timer is set: nothing could ever happen again."""


class Timer:
    """A call at a moment of the virtual clock."""

    __slots__ = ("arguments", "callback")

    def __init__(self, callback: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self.callback: Callable[..., object] | None = callback
        self.arguments = arguments

    def cancel(self) -> None:
        """Do not make the call."""
        self.callback = None
        self.arguments = ()


class Node:
    """A simulated process on a host of its own.

    Attributes:
        skew: seconds that its wall clock is ahead.
        is_paused: its fibers do not run (SIGSTOP).
        is_dead: its fibers never run again (SIGKILL).
    """

    def __init__(self, name: str, address: str = "127.0.0.1") -> None:
        self.name = name
        self.address = address
        self.skew = 0.0
        self.is_paused = False
        self.is_dead = False
        self.held: list[Fiber] = []
        self.fibers: dict[Fiber, None] = {}
        """All that have not ended; a dead node's must not be freed, which would run them."""

    def __repr__(self) -> str:
        return f"<Node {self.name}>"


class Fiber:
    """A greenlet of the hub, with what belongs to a thread of the operating system."""

    __slots__ = ("error", "greenlet", "is_ready", "is_waiting", "name", "node", "round", "running")

    def __init__(self, name: str, node: Node | None, switched: greenlet) -> None:
        self.name = name
        self.node = node
        self.greenlet = switched
        self.running: asyncio.AbstractEventLoop | None = None
        """The event loop that runs in it."""
        self.round = 0  # counts the waits: a timer of an earlier one is void
        self.is_ready = False
        self.is_waiting = False
        self.error: BaseException | None = None

    def __repr__(self) -> str:
        return f"<Fiber {self.name}>"


class Hub:
    """Runs fibers on a virtual clock."""

    def __init__(self, random: Random | None = None) -> None:
        self.now = BEGIN
        self.random = random
        self.main = self.current = Fiber("main", None, getcurrent())
        self.turns = 0
        """How often a fiber was continued."""
        self.reading_seconds = 1e-6
        """How long a reading of the fine clock takes, so that measured work ends some time. A test
        of work that is done in slices makes it longer."""
        self._vain_turns = 0
        self._main_is_over = False
        self._is_over = False
        self._fibers: dict[Fiber, None] = {}
        self._worked = 0.0
        self._ready: deque[Fiber] = deque()
        self._chosen: list[Fiber] = []
        self._timers: list[tuple[float, float, int, Timer]] = []
        self._count = 0
        self._greenlet = greenlet(self._run)

    @property
    def node(self) -> Node | None:
        """The node of the fiber that runs now."""
        return self.current.node

    # --- clocks -----------------------------------------------------------------------------

    def monotonic(self) -> float:
        """See `quafka_loop.clock`."""
        return self.now

    def time(self) -> float:
        """See `quafka_loop.clock`."""
        node = self.current.node
        return EPOCH + (self.now - BEGIN) + (0.0 if node is None else node.skew)

    def time_ns(self) -> int:
        """See `quafka_loop.clock`."""
        return int(self.time() * 1_000_000) * 1000

    def perf_counter(self) -> float:
        """See `quafka_loop.clock`. Each call takes a microsecond, or `reading_seconds`."""
        self._worked += self.reading_seconds
        return self.now + self._worked

    def cpu_time(self) -> float:
        """The time that the readings of the fine clock have taken: nothing else is counted."""
        self._worked += self.reading_seconds
        return self._worked

    def sleep(self, seconds: float) -> None:
        """Block the fiber that runs now."""
        self.block(self.now + max(0.0, seconds))

    # --- fibers -----------------------------------------------------------------------------

    def spawn(self, function: Callable[[], object], name: str, node: Node | None = None) -> Fiber:
        """Run a function in a fiber of its own, after the fibers that are ready now.

        It belongs to `node`, by default to the node of the fiber that runs now.
        """
        node = node if node is not None else self.current.node
        fiber = Fiber(name, node, greenlet(lambda: self._live(fiber, function), self._greenlet))
        self._fibers[fiber] = None
        if node is not None:
            node.fibers[fiber] = None
        self._make_ready(fiber)
        return fiber

    def _live(self, fiber: Fiber, function: Callable[[], object]) -> None:
        try:
            function()
        except GreenletExit:
            pass
        except Exception as e:
            fiber.error = e
        finally:
            self._fibers.pop(fiber, None)
            if fiber.node is not None:
                fiber.node.fibers.pop(fiber, None)

    def block(self, until: float | None = None) -> bool:
        """Let others run until `wake` is called, or until a moment; returns whether it was woken.

        Raises:
            NothingLeftError: in the main fiber, if nothing could ever wake it.
        """
        fiber = self.current
        fiber.round += 1
        fiber.is_waiting = True
        if until is not None:
            self.call_at(until, self._time_is_up, fiber, fiber.round)
        self._leave(fiber)
        woken = not fiber.is_waiting
        fiber.is_waiting = False
        return woken

    def give_way(self) -> None:
        """Let the other fibers that are ready run first, and what is due now happen.

        If nothing else could run, again and again, some time passes: the fiber waits for it.
        """
        if not (self._ready or self._chosen or self._is_due()):
            self._vain_turns += 1
            if self._vain_turns < _VAIN_TURNS:
                return
            self._vain_turns = 0
            self.now += _VAIN_TURNS * _TURN_SECONDS
            if not self._is_due():
                return
        fiber = self.current
        self._make_ready(fiber)
        self._leave(fiber)

    def _is_due(self) -> bool:
        return bool(self._timers) and self._timers[0][0] <= self.now

    def wake(self, fiber: Fiber) -> None:
        """Continue a fiber that blocks. Nothing happens if it does not."""
        if fiber.is_waiting:
            fiber.is_waiting = False
            fiber.round += 1
            self._make_ready(fiber)

    def call_at(self, when: float, callback: Callable[..., object], *arguments: Any) -> Timer:
        """Make a call at a moment, outside all fibers. It must not block or raise."""
        timer = Timer(callback, arguments)
        self._count += 1
        rank = self.random.random() if self.random is not None else 0.0
        heapq.heappush(self._timers, (when, rank, self._count, timer))
        return timer

    def call_later(self, seconds: float, callback: Callable[..., object], *arguments: Any) -> Timer:
        """As `call_at`, after some seconds."""
        return self.call_at(self.now + seconds, callback, *arguments)

    # --- nodes ------------------------------------------------------------------------------

    def pause(self, node: Node) -> None:
        """Stop a node's fibers until `resume`, as SIGSTOP does."""
        node.is_paused = True

    def resume(self, node: Node) -> None:
        """Continue a paused node."""
        node.is_paused = False
        held, node.held = node.held, []
        for fiber in held:
            self._make_ready(fiber)

    def kill(self, node: Node) -> None:
        """End a node at once: none of its code runs any more, not even to clean up."""
        node.is_dead = True

    # --- running ----------------------------------------------------------------------------

    def _make_ready(self, fiber: Fiber) -> None:
        if not fiber.is_ready:
            fiber.is_ready = True
            (self._ready if self.random is None else self._chosen).append(fiber)

    def end(self) -> None:
        """End all fibers but this one; whatever would block after that raises GreenletExit.

        Without this, they would end when the garbage collector finds them, amid something else.
        """
        self._is_over = True
        running = asyncio._get_running_loop()
        while self._fibers:
            fiber, _ = self._fibers.popitem()
            if fiber.node is not None and fiber.node.is_dead:
                continue  # it must not even clean up
            fiber.greenlet.parent = getcurrent()
            asyncio._set_running_loop(fiber.running)
            fiber.greenlet.throw(GreenletExit)
        asyncio._set_running_loop(running)

    def _leave(self, fiber: Fiber) -> None:
        """Switch to the hub; returns when the fiber is continued."""
        if self._is_over:
            raise GreenletExit
        fiber.running = asyncio._get_running_loop()
        self._greenlet.switch()
        if self._main_is_over:
            raise NothingLeftError("nothing is left that could happen")

    def _time_is_up(self, fiber: Fiber, waited: int) -> None:
        if fiber.round == waited and fiber.is_waiting:
            self._make_ready(fiber)

    def _next(self) -> Fiber | None:
        if self.random is None:
            return self._ready.popleft() if self._ready else None
        chosen = self._chosen
        if not chosen:
            return None
        at = self.random.randrange(len(chosen)) if len(chosen) > 1 else 0
        chosen[at], chosen[-1] = chosen[-1], chosen[at]
        return chosen.pop()

    def _run(self) -> None:
        try:
            self._run_for_ever()
        finally:  # KeyboardInterrupt, or pytest's time is up: the main fiber gets it
            self._is_over = True

    def _run_for_ever(self) -> None:
        while True:
            self._make_due_calls()
            fiber = self._next()
            if fiber is not None:
                self._continue(fiber)
            elif not self._advance():
                self._main_is_over = True
                self._continue(self.main)
                self._main_is_over = False

    def _continue(self, fiber: Fiber) -> None:
        fiber.is_ready = False
        node = fiber.node
        if node is not None and (node.is_dead or node.is_paused):
            if not node.is_dead:
                node.held.append(fiber)
            return
        self.turns += 1
        self.current = fiber
        asyncio._set_running_loop(fiber.running)
        fiber.greenlet.switch()
        asyncio._set_running_loop(None)
        self.current = self.main

    def _make_due_calls(self) -> None:
        timers = self._timers
        while timers and timers[0][0] <= self.now:
            timer = heapq.heappop(timers)[3]
            if timer.callback is not None:
                timer.callback(*timer.arguments)

    def _advance(self) -> bool:
        """Nothing is ready: move the clock to the next timer, if there is one."""
        timers = self._timers
        while timers and _is_void(timers[0][3]):
            heapq.heappop(timers)
        if timers:
            self.now = max(self.now, timers[0][0])
        return bool(timers)


def _is_void(timer: Timer) -> bool:
    """Whether nothing comes of it: the clock does not stop at it."""
    callback = timer.callback
    if callback is None:
        return True
    if getattr(callback, "__func__", None) is Hub._time_is_up:
        fiber, waited = timer.arguments
        return fiber.round != waited or not fiber.is_waiting
    return False
