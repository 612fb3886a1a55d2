"""Runs one program: start, say so, wait for a reason to stop, drain."""

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

from quafka_telemetry.garbage import collect_when_idle
from quafka_telemetry.loop_turns import LoopTurns
from quafka_telemetry.metrics import Metrics
from quafka_telemetry.otlp_metrics import MetricsPush
from quafka_telemetry.startup import StartupError
from quafka_telemetry.tracing import Tracer

log = logging.getLogger("quafka")

_DRAIN_SECONDS = 10.0
_SWITCH_SECONDS = 0.001
"""How long the event loop may wait for a thread that computes; Python's own choice is five."""
EXIT_CANNOT_START = 1
EXIT_WRONG_SETTING = 2
EXIT_INTERRUPTED = 130
EXIT_NOBODY_READS = 141

TRACING = "tracing"
"""Among what a program says when it is ready, if it records traces."""


class Program(Protocol):
    """What can be run."""

    @property
    def metrics(self) -> Metrics:
        """What it measures; those of its event loop are added."""
        ...

    async def start(self) -> None:
        """Ready on return. Raises StartupError."""
        ...

    async def close(self) -> None:
        """Drain and release everything."""
        ...

    def describe(self) -> dict[str, str]:
        """Addresses and node id, once started."""
        ...


def run(
    program: Program,
    tracer: Tracer,
    ready_fd: int | None,
    lifeline_fd: int | None,
    push: MetricsPush | None = None,
    *,
    keeps_state: bool = False,
) -> int:
    """Run until SIGTERM, SIGINT or the lifeline's end; the exit code.

    `keeps_state`: most objects of the program live as long as it (see quafka_telemetry.garbage).
    A second SIGINT does not wait for the program to drain.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    _raise_open_files_limit()
    turns = LoopTurns()
    program.metrics.add(turns.collect)
    try:
        with asyncio.Runner(loop_factory=turns.new_loop) as runner:
            return runner.run(_run(program, tracer, ready_fd, lifeline_fd, push, keeps_state))
    finally:
        tracer.shutdown()


async def _run(
    program: Program,
    tracer: Tracer,
    ready_fd: int | None,
    lifeline_fd: int | None,
    push: MetricsPush | None,
    keeps_state: bool,
) -> int:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_log_loop_error)
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, _interrupted, stop)
    if lifeline_fd is not None:
        loop.add_reader(lifeline_fd, _lifeline_ended, lifeline_fd, stop)
    try:
        await program.start()
    except StartupError as e:
        print(f"quafka: {e}", file=sys.stderr)
        await program.close()
        return EXIT_CANNOT_START
    # What there is now stays. With it no search for garbage would be short: 60 ms, for 10,000
    # partitions, in which nothing is served.
    gc.freeze()
    garbage = loop.create_task(collect_when_idle(sets_aside=keeps_state))
    _say_ready(program, tracer, ready_fd)
    if push is not None:
        push.start()
    await stop.wait()
    log.debug("draining")
    garbage.cancel()
    try:
        await asyncio.wait_for(program.close(), _DRAIN_SECONDS)
    except TimeoutError:
        log.error("not everything was answered within %d s", _DRAIN_SECONDS)  # noqa: TRY400
    if push is not None:
        await push.close()
    return 0


def _raise_open_files_limit() -> None:
    """Raise the soft limit of open files to the hard one.

    It is 1,024 by default only for the sake of programs that call select(2).
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _say_ready(program: Program, tracer: Tracer, ready_fd: int | None) -> None:
    about = program.describe()
    if type(tracer) is not Tracer:  # the base never samples
        about[TRACING] = "on"
    if ready_fd is None:
        log.info("ready: %s", ", ".join(f"{key} {value}" for key, value in about.items()))
    else:  # whoever started us tells it in its own way
        with os.fdopen(ready_fd, "w") as out:
            out.write(json.dumps(about) + "\n")


def _interrupted(stop: asyncio.Event) -> None:
    """Ctrl-C: drain. Again: end at once, which loses nothing that was acknowledged."""
    if stop.is_set():
        os._exit(EXIT_INTERRUPTED)
    stop.set()


def _lifeline_ended(fd: int, stop: asyncio.Event) -> None:
    """Whoever started us is gone."""
    if not os.read(fd, 64):
        asyncio.get_running_loop().remove_reader(fd)
        stop.set()


def _log_loop_error(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    log.error("%s", context.get("message"), exc_info=error)
