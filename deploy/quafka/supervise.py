"""Supervises child processes: starts them in order, restarts those that end, and stops them in
reverse order.

All processes are made at once: each imports its modules while the ones before it start, and gets
its flags when they are ready.

Children run in sessions of their own, so that Ctrl-C reaches only this process. Each holds the
reading end of a pipe from this process (the lifeline): if this process is killed, the pipe closes
and the children drain by themselves.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from quafka.hang_up import on_hang_up
from quafka.service_manager import VARIABLES, ServiceManager

_STOP_SECONDS = 20.0  # longer than a program takes to drain and to export its last spans
_SLOW_START_SECONDS = 5.0
_BACKOFF_SECONDS = (0.1, 5.0)
_HEALTHY_SECONDS = 5.0  # a child that ran for this long is restarted with the shortest pause
_EXTRA_SECONDS = 1.0
"""How long after the greeting an extra child starts: its imports would delay the first requests."""
_KILLED = 1


class Child:
    """One program as a process."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        arguments: Callable[[], Mapping[str, str]],
        environment: Mapping[str, str] | None = None,
        listening_fd: int | None = None,
    ) -> None:
        """Describe a child; `start` starts it.

        Args:
            command: the program. It accepts `--ready-fd=N`, to which it writes one line of JSON (an
                object of strings) when it is ready, `--lifeline-fd=N`: it stops when that pipe
                closes, and `--flags-on-stdin`: it reads its other flags, a JSON array of texts,
                from there, and ends if there are none.
            arguments: flags and their values. Called at each start, so they may depend on the
                last report in `ready`: that is how a child keeps its port.
            environment: variables, besides those of this process.
            listening_fd: a listening socket, which the program accepts as `--listening-fd=N`. It
                stays open while the child restarts, so that connections wait.
        """
        self.name = name
        self.ready: dict[str, str] = {}
        self._is_ready = False
        self._command = command
        self.arguments = arguments
        inherited = {name: os.environ[name] for name in os.environ if name not in VARIABLES}
        self._environment = {**inherited, **(environment or {})}
        self._listening_fd = listening_fd
        self._process: asyncio.subprocess.Process | None = None
        self._lifeline: int | None = None
        self._report: int | None = None

    async def prepare(self) -> None:
        """Make the process, which waits for its flags."""
        self._is_ready = False
        self._cut_lifeline()
        lifeline, self._lifeline = os.pipe()
        self._report, report = os.pipe()
        listening = () if self._listening_fd is None else (self._listening_fd,)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                *(f"--ready-fd={report}", f"--lifeline-fd={lifeline}", "--flags-on-stdin"),
                *(f"--listening-fd={each}" for each in listening),
                stdin=asyncio.subprocess.PIPE,
                pass_fds=(report, lifeline, *listening),
                env=self._environment,
                start_new_session=True,
            )
        finally:
            os.close(report)
            os.close(lifeline)

    async def start(self) -> bool:
        """Start the child and wait until it is ready; False: it ended, after printing the reason.

        Without a time limit: a broker may verify a large log first.
        """
        if self._report is None:
            await self.prepare()
        assert self._process is not None
        assert self._report is not None
        flags = [f"{flag}={value}" for flag, value in self.arguments().items()]
        await _send(self._process, json.dumps(flags).encode())
        report, self._report = self._report, None
        line = await _read_line(report)
        if line:
            self.ready = json.loads(line)
            self._is_ready = True
        return self._is_ready

    async def wait(self) -> int:
        """Wait for the end; return the exit code, or minus the signal's number. Not started: 0."""
        return 0 if self._process is None else await self._process.wait()

    async def end(self) -> bool:
        """Let the child drain and wait for its end; False: it took too long and was killed."""
        self._signal(signal.SIGTERM)
        in_time = True
        try:
            await asyncio.wait_for(self.wait(), _STOP_SECONDS)
        except TimeoutError:
            in_time = False
            say(f"the {self.name} does not stop; killing it")
            self.kill()
            await self.wait()
        self._cut_lifeline()
        if self._report is not None:
            os.close(self._report)
            self._report = None
        return in_time

    def stop_listening(self) -> None:
        """Refuse connections from now on: the child will not be started again."""
        if self._listening_fd is not None:
            os.close(self._listening_fd)
            self._listening_fd = None

    def reload(self) -> None:
        """Pass SIGHUP on. A child that is still starting will read everything anyway."""
        if self._is_ready:
            self._signal(signal.SIGHUP)

    def kill(self) -> None:
        """Kill the child if it still runs."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    def _cut_lifeline(self) -> None:
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None


async def supervise(
    children: Sequence[Child], greet: Callable[[], None], extra: Child | None = None
) -> int:
    """Run the children until SIGINT or SIGTERM. A second signal kills them. SIGHUP reloads them.

    Args:
        children: in starting order; each may need the ready reports of those before it.
        greet: called once when all are ready.
        extra: a child that starts shortly after that, and stops last: the others may send to it
            while they drain. If it cannot start, the others go on.

    Returns:
        0 if all have drained, 1 if one had to be killed, a child's exit code if it could not start
        (no child runs then).
    """
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    _on_signals(loop, stop.set)

    everyone = [*([] if extra is None else [extra]), *children]
    manager = ServiceManager.from_environment()

    def reload() -> None:
        manager.reloading()
        for child in everyone:
            child.reload()
        manager.reloaded()

    def ready() -> None:
        greet()
        manager.ready(", ".join(f"{child.name} ready" for child in children))

    on_hang_up(loop, reload, stop.set)
    running = loop.create_task(_keep_running(children, ready, extra))
    stopping = loop.create_task(stop.wait())
    await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
    if stop.is_set():
        manager.stopping()
        say("stopping: completing requests in progress ...")
    stopping.cancel()
    running.cancel()
    await asyncio.wait((running, stopping))
    clean = await _stop(loop, everyone)
    if not running.cancelled():
        return running.result()
    say("stopped")
    return 0 if clean else _KILLED


def say(text: str) -> None:
    """Print a line to the terminal, if it is still there."""
    with suppress(OSError):
        print(text, flush=True)


async def _stop(loop: asyncio.AbstractEventLoop, children: Sequence[Child]) -> bool:
    """Stop the children in reverse order. False: one had to be killed."""
    killed = asyncio.Event()

    def kill() -> None:
        killed.set()
        for child in children:
            child.kill()

    _on_signals(loop, kill)
    ends = [await child.end() for child in reversed(children)]
    return all(ends) and not killed.is_set()


async def _keep_running(
    children: Sequence[Child], greet: Callable[[], None], extra: Child | None
) -> int:
    """Start all children and restart those that end. Returns only if a first start fails."""
    for child in children:
        await child.prepare()
    for child in children:
        if not await _start(child):
            return await child.wait() or _KILLED
    greet()
    async with asyncio.TaskGroup() as group:
        for child in children:
            group.create_task(_watch(child))
        if extra is not None:
            group.create_task(_run_extra(extra))
    raise AssertionError("watching never ends")


async def _run_extra(child: Child) -> None:
    """Start a child without which the others go on, and watch it."""
    await asyncio.sleep(_EXTRA_SECONDS)
    if await _start(child):
        await _watch(child)
    say(f"the {child.name} cannot start ({_reason(await child.wait())}); going on without it")
    child.stop_listening()


async def _start(child: Child) -> bool:
    loop = asyncio.get_running_loop()
    notice = f"the {child.name} is not ready yet; still waiting ..."
    timer = loop.call_later(_SLOW_START_SECONDS, say, notice)
    try:
        return await child.start()
    finally:
        timer.cancel()


async def _watch(child: Child) -> None:
    """Restart a child whenever it ends; the pause doubles while it keeps ending early."""
    loop = asyncio.get_running_loop()
    shortest, longest = _BACKOFF_SECONDS
    pause = shortest
    while True:
        began = loop.time()
        code = await child.wait()
        if loop.time() - began > _HEALTHY_SECONDS:
            pause = shortest
        say(f"the {child.name} ended ({_reason(code)}); restarting it in {pause:g} s")
        await asyncio.sleep(pause)
        pause = min(longest, pause * 2)
        if await _start(child):
            say(f"the {child.name} is ready again")


def _reason(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"exit code {code}"
    return signal.strsignal(-code) or f"signal {-code}"


def _on_signals(loop: asyncio.AbstractEventLoop, action: Callable[[], None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, action)


async def _send(process: asyncio.subprocess.Process, data: bytes) -> None:
    """Write all that a process finds on its stdin. One that has ended reads nothing."""
    assert process.stdin is not None
    with suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(data)
        process.stdin.close()
        await process.stdin.wait_closed()


async def _read_line(fd: int) -> bytes:
    """Read a child's ready report; empty if the child ends first. Closes the pipe."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb")
    )
    try:
        return await reader.readline()
    finally:
        transport.close()
