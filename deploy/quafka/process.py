"""Runs one program: start it, report that it is ready, wait for a stop signal, drain."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import resource
import signal
import sys
from typing import Any, Protocol

from quafka.exit_codes import EXIT_CANNOT_START, EXIT_INTERRUPTED
from quafka.greetings import TRACING
from quafka.hang_up import on_hang_up
from quafka.service_manager import ServiceManager
from quafka_loop import clock, threads
from quafka_loop.garbage import search_survivors
from quafka_loop.heap import keep_freed_memory
from quafka_telemetry.loop_turns import LoopTurns
from quafka_telemetry.metrics import Metrics
from quafka_telemetry.otlp_metrics import MetricsPush
from quafka_telemetry.startup import StartupError
from quafka_telemetry.tracing import Tracer

log = logging.getLogger("quafka")

_DRAIN_SECONDS = 10.0
_START_SECONDS = 5.0
"""How long a stop waits for the end of a recovery; then the start is abandoned."""
_LEAVE_SECONDS = 3.0
"""How long the end of the process waits for threads, after the drain."""
_SWITCH_SECONDS = 0.001
"""How long a computing thread may keep the event loop waiting; Python's default is 5 ms."""


class Program(Protocol):
    """A program that `run` can run."""

    @property
    def metrics(self) -> Metrics:
        """The program's metrics; `run` adds those of the event loop."""
        ...

    async def start(self) -> None:
        """Start; the program is ready on return. Raises StartupError."""
        ...

    async def reload(self) -> None:
        """Read again, now, what may change while the program runs: it may still be starting."""
        ...

    async def close(self) -> None:
        """Drain and release everything."""
        ...

    def describe(self) -> dict[str, str]:
        """The ready report: addresses and node id."""
        ...


def run(
    program: Program,
    tracer: Tracer,
    ready_fd: int | None,
    lifeline_fd: int | None,
    push: MetricsPush | None = None,
    *,
    keeps_state: bool = False,
    leaves_cycles: bool = False,
) -> int:
    """Run until SIGTERM, SIGINT or the end of the lifeline; return the exit code.

    SIGHUP reloads what can be reloaded; if the program's terminal was closed, it stops the program.
    A second SIGINT ends the process without draining. A service manager learns of each step.
    A thread cannot be interrupted while a store or a disk keeps it waiting: the process ends
    without such threads. `keeps_state`: most of the program's objects live as long as the process
    (see quafka_loop.garbage), and threads may be recovering them during the start, which therefore
    has a few seconds to end; any other start is cut short. `leaves_cycles`: objects that were used
    for long leave cycles behind, so Python searches old objects, too, on its own schedule.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    keep_freed_memory()
    _raise_open_files_limit()
    turns = LoopTurns()
    program.metrics.add(turns.collect)
    loop_closed, spans_sent = threads.Event(), threads.Event()
    try:
        with asyncio.Runner(loop_factory=turns.new_loop) as runner:
            running = _run(program, tracer, ready_fd, lifeline_fd, push, keeps_state, leaves_cycles)
            code = runner.run(running)
            leaving = (code, tracer, loop_closed, spans_sent)
            threads.Thread(target=_leave, args=leaving, name="leave", daemon=True).start()
        return code
    finally:
        loop_closed.set()
        tracer.shutdown()
        spans_sent.set()


def _leave(
    code: int, tracer: Tracer, loop_closed: threads.Event, spans_sent: threads.Event
) -> None:
    """End the process if its threads do not. Both closing the loop and Python's exit join them."""
    if loop_closed.wait(_LEAVE_SECONDS):
        spans_sent.wait()
        clock.sleep(_LEAVE_SECONDS)
    else:
        tracer.shutdown()
    log.warning("the process ends without threads that wait for a store or a disk")
    sys.stdout.flush()
    os._exit(code)


async def _run(
    program: Program,
    tracer: Tracer,
    ready_fd: int | None,
    lifeline_fd: int | None,
    push: MetricsPush | None,
    keeps_state: bool,
    leaves_cycles: bool,
) -> int:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_log_loop_error)
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, _interrupted, stop)
    wanted = asyncio.Event()
    on_hang_up(loop, wanted.set, stop.set)
    manager = ServiceManager.from_environment()
    reloading = loop.create_task(_reload(program, wanted, manager))
    if lifeline_fd is not None:
        loop.add_reader(lifeline_fd, _lifeline_ended, lifeline_fd, stop)
    try:
        if not await _started(program, stop, _START_SECONDS if keeps_state else 0.0):
            log.warning("stopped during the start")
            manager.stopping()
            if not keeps_state:
                await _close(program)
            return 0
    except StartupError as e:
        print(f"quafka: {e}", file=sys.stderr)
        await _close(program)
        return EXIT_CANNOT_START
    # The state at the start lives as long as the process. Without this, every full collection
    # would scan it and block the loop: 60 ms for 10,000 partitions.
    gc.freeze()
    garbage = None if leaves_cycles else loop.create_task(search_survivors())
    _report_ready(program, tracer, ready_fd, manager)
    if push is not None:
        push.start()
    await stop.wait()
    log.debug("draining")
    manager.stopping()
    if garbage is not None:
        garbage.cancel()
    reloading.cancel()
    await _close(program)
    if push is not None:
        await push.close()
    return 0


async def _started(program: Program, stop: asyncio.Event, patience: float) -> bool:
    """Start the program. False: a stop came first, and the start was abandoned.

    `patience`: how many seconds the start has after the stop.

    Raises:
        StartupError: the start failed.
    """
    starting = asyncio.ensure_future(program.start())
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait((starting, stopped), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not starting.done():
        await asyncio.wait((starting,), timeout=patience)
    if not starting.done():
        starting.cancel()
        await asyncio.wait((starting,), timeout=_LEAVE_SECONDS)
        return False
    starting.result()
    return True


async def _reload(program: Program, wanted: asyncio.Event, manager: ServiceManager) -> None:
    """Reload the program whenever it is `wanted`. Never returns."""
    while True:
        await wanted.wait()
        wanted.clear()
        manager.reloading()
        log.info(
            "SIGHUP: certificates, allow-lists and the keys of tokens are read again; other "
            "settings take effect at the next start"
        )
        try:
            await program.reload()
        except Exception:  # a defect must not end later reloads
            log.exception("the reload failed")
        manager.reloaded()


async def _close(program: Program) -> None:
    try:
        await asyncio.wait_for(program.close(), _DRAIN_SECONDS)
    except TimeoutError:
        log.error("stopped after %d s with requests unanswered", _DRAIN_SECONDS)  # noqa: TRY400


def _raise_open_files_limit() -> None:
    """Raise the soft limit of open files to the hard one.

    The default of 1,024 exists only for programs that call select(2).
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _report_ready(
    program: Program, tracer: Tracer, ready_fd: int | None, manager: ServiceManager
) -> None:
    about = program.describe()
    if type(tracer) is not Tracer:  # the base class never samples
        about[TRACING] = "on"
    text = ", ".join(f"{key} {value}" for key, value in about.items())
    manager.ready(text)
    if ready_fd is None:
        log.info("ready: %s", text)
    else:  # the parent process prints its own report
        with os.fdopen(ready_fd, "w") as out:
            out.write(json.dumps(about) + "\n")


def _interrupted(stop: asyncio.Event) -> None:
    """Ctrl-C: drain. A second one: exit at once; acknowledged records are safe."""
    if stop.is_set():
        os._exit(EXIT_INTERRUPTED)
    stop.set()


def _lifeline_ended(fd: int, stop: asyncio.Event) -> None:
    """The parent process has ended: drain."""
    if not os.read(fd, 64):
        asyncio.get_running_loop().remove_reader(fd)
        stop.set()


def _log_loop_error(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    log.error("%s", context.get("message"), exc_info=error)
