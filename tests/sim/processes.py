"""Plays each seed in a process of its own: killed programs leave their objects behind."""

from __future__ import annotations

import contextlib
import gc
import logging
import multiprocessing
import os
import pickle
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path

from tests.sim.faults import Fault
from tests.sim.world import Result, simulate

_SECONDS = 600.0
"""Real seconds after which a run counts as hanging: most take a few."""

Setup = Callable[[], None]


def play(
    seed: int,
    schedule: Sequence[Fault] | None = None,
    *,
    keep_lines: bool = False,
    setup: Setup | None = None,
) -> Result:
    """Play a seed in a child process. `setup` runs there first: it may plant a defect."""
    with _Run(seed, schedule, keep_lines, setup) as run:
        wait([run.connection], _SECONDS)
        return run.result()


def play_all(
    seeds: Iterable[int], *, at_once: int | None = None, setup: Setup | None = None
) -> Iterator[Result]:
    """Play seeds on all cores; yields results in the order of their ends."""
    most = at_once or os.cpu_count() or 1
    waiting = iter(seeds)
    running: dict[Connection, _Run] = {}
    try:
        while True:
            while len(running) < most and (seed := next(waiting, None)) is not None:
                run = _Run(seed, None, False, setup)
                running[run.connection] = run
            if not running:
                return
            for connection in wait(list(running), _SECONDS) or list(running):
                run = running.pop(connection)  # type: ignore[call-overload]
                yield run.result()
                run.close()
    finally:
        for run in running.values():
            run.close()


class _Run:
    """A child process that plays one seed."""

    def __init__(
        self, seed: int, schedule: Sequence[Fault] | None, keep_lines: bool, setup: Setup | None
    ) -> None:
        self._seed = seed
        self.connection, theirs = multiprocessing.Pipe(duplex=False)
        self._pid = os.fork()
        if self._pid == 0:
            _child(theirs, seed, schedule, keep_lines, setup)
        theirs.close()

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def result(self) -> Result:
        """What the child has found; a violation if it has died or hangs."""
        try:
            if not self.connection.poll():
                return Result(self._seed, [f"hangs: no result after {_SECONDS:.0f} s"], cpu=1.0)
            found: Result = pickle.loads(self.connection.recv_bytes())
        except EOFError:
            return Result(self._seed, ["the process died"], cpu=1.0)
        return found

    def close(self) -> None:
        """End the process."""
        self.connection.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, 9)
        os.waitpid(self._pid, 0)


def _child(
    connection: Connection,
    seed: int,
    schedule: Sequence[Fault] | None,
    keep_lines: bool,
    setup: Setup | None,
) -> None:
    """Play the seed, send the result, and end without cleaning up."""
    try:
        gc.disable()  # when it runs is no part of the seed
        logging.disable()
        if setup is not None:
            setup()
        try:
            result = simulate(seed, schedule, keep_lines=keep_lines)
        except BaseException as e:
            last = traceback.extract_tb(e.__traceback__)[-1]
            where = f"{Path(last.filename).name}:{last.lineno}"
            result = Result(seed, [f"{type(e).__name__}: {e} ({where})"], cpu=1.0)
        connection.send_bytes(pickle.dumps(result))
    finally:
        os._exit(0)
