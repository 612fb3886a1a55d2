"""Looks after child processes: starts them in order, starts one that ends again, stops them in
the reverse order.

They run in sessions of their own, so that Ctrl-C reaches only this process, and each holds the
end of a pipe from it (the lifeline): should this process be killed, they drain by themselves.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence

_STOP_SECONDS = 20.0  # more than a program takes to drain, and to send its last spans and metrics
_SLOW_START_SECONDS = 5.0
_BACKOFF_SECONDS = (0.1, 5.0)
_HEALTHY_SECONDS = 5.0  # one that ran for this long ended for a new reason
_KILLED = 1


class Child:
    """One program as a process."""

    def __init__(
        self, name: str, command: Sequence[str], arguments: Callable[[], Mapping[str, str]]
    ) -> None:
        """Nothing runs yet.

        Args:
            command: the program. It takes `--ready-fd=N`, to which it writes one line of JSON (an
                object of strings) once it is ready, and `--lifeline-fd=N`, at whose end it stops.
            arguments: flags and their values. Called before each start, so they may depend on
                what was `ready` before: a child keeps its port that way.
        """
        self.name = name
        self.ready: dict[str, str] = {}
        self._command = command
        self._arguments = arguments
        self._process: asyncio.subprocess.Process | None = None
        self._lifeline: int | None = None

    async def start(self) -> bool:
        """Start it and wait until it is ready; False: it ended instead, having said why.

        However long it takes: a broker that checks a large log must not be given up.
        """
        self._cut_lifeline()
        lifeline, self._lifeline = os.pipe()
        ready, ready_end = os.pipe()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                *(f"{flag}={value}" for flag, value in self._arguments().items()),
                *(f"--ready-fd={ready_end}", f"--lifeline-fd={lifeline}"),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(ready_end, lifeline),
                start_new_session=True,
            )
        except BaseException:
            os.close(ready)
            raise
        finally:
            os.close(ready_end)
            os.close(lifeline)
        line = await _read_line(ready)
        if line:
            self.ready = json.loads(line)
        return bool(line)

    async def wait(self) -> int:
        """Wait for its end; the exit code, or minus the signal's number. Never started: 0."""
        return 0 if self._process is None else await self._process.wait()

    async def end(self) -> bool:
        """Have it drain, and wait for its end; False: it was killed for taking too long."""
        self._signal(signal.SIGTERM)
        in_time = True
        try:
            await asyncio.wait_for(self.wait(), _STOP_SECONDS)
        except TimeoutError:
            in_time = False
            say(f"the {self.name} does not end; killing it")
            self.kill()
            await self.wait()
        self._cut_lifeline()
        return in_time

    def kill(self) -> None:
        """Kill it, if it still runs."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    def _cut_lifeline(self) -> None:
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None


async def supervise(children: Sequence[Child], greet: Callable[[], None]) -> int:
    """Run the children until SIGINT or SIGTERM. A second signal kills them.

    Args:
        children: in starting order; each may need what those before it reported.
        greet: called once when all are ready.

    Returns:
        0 when all have drained, 1 when one had to be killed, a child's exit code when it could
        not start (nothing runs then).
    """
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    _on_signals(loop, stop.set)
    running = loop.create_task(_keep_running(children, greet))
    stopping = loop.create_task(stop.wait())
    await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
    if stop.is_set():
        say("stopping: answering what is under way ...")
    stopping.cancel()
    running.cancel()
    await asyncio.wait((running, stopping))
    clean = await _stop(loop, children)
    if not running.cancelled():
        return running.result()
    say("stopped")
    return 0 if clean else _KILLED


def say(text: str) -> None:
    """Tell the person at the terminal."""
    print(text, flush=True)


async def _stop(loop: asyncio.AbstractEventLoop, children: Sequence[Child]) -> bool:
    """Stop the last one first. False: one had to be killed."""
    killed = asyncio.Event()

    def kill() -> None:
        killed.set()
        for child in children:
            child.kill()

    _on_signals(loop, kill)
    ends = [await child.end() for child in reversed(children)]
    return all(ends) and not killed.is_set()


async def _keep_running(children: Sequence[Child], greet: Callable[[], None]) -> int:
    """Start all and start again those that end. Returns only when one cannot start at first."""
    for child in children:
        if not await _start(child):
            return await child.wait() or _KILLED
    greet()
    async with asyncio.TaskGroup() as group:
        for child in children:
            group.create_task(_watch(child))
    raise AssertionError("watching never ends")


async def _start(child: Child) -> bool:
    loop = asyncio.get_running_loop()
    notice = f"the {child.name} is not ready yet; still waiting ..."
    timer = loop.call_later(_SLOW_START_SECONDS, say, notice)
    try:
        return await child.start()
    finally:
        timer.cancel()


async def _watch(child: Child) -> None:
    """Start a child again whenever it ends: at once if it ran for a while, later if not."""
    loop = asyncio.get_running_loop()
    shortest, longest = _BACKOFF_SECONDS
    pause = shortest
    while True:
        began = loop.time()
        code = await child.wait()
        if loop.time() - began > _HEALTHY_SECONDS:
            pause = shortest
        say(f"the {child.name} ended ({_reason(code)}); starting it again in {pause:g} s")
        await asyncio.sleep(pause)
        pause = min(longest, pause * 2)
        if await _start(child):
            say(f"the {child.name} is ready again")


def _reason(code: int) -> str:
    """What an exit code means, in words."""
    if code >= 0:
        return f"exit code {code}"
    return signal.strsignal(-code) or f"signal {-code}"


def _on_signals(loop: asyncio.AbstractEventLoop, action: Callable[[], None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, action)


async def _read_line(fd: int) -> bytes:
    """What a child says on its pipe; nothing if it ends first. Closes the pipe."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb")
    )
    try:
        return await reader.readline()
    finally:
        transport.close()
