"""Runs in the processes of a stage before anything else, found through PYTHONPATH.

It changes what `quafka_loop_longest_turn_seconds` means there: the time for which the event loop's
thread was runnable and had no core (proc(5), schedstat) is left out of long turns, so that other
work on the machine does not count as the product's. Code of before that metric gets it here.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
from time import perf_counter
from typing import Any

_LONG = 0.05
_SAMPLE_SECONDS = 0.005
_PROBE = "quafka_telemetry.loop_turns"


def _probe(path: str) -> Any:
    """The module that measures turns; where the code has none, the one at `path`."""
    if importlib.util.find_spec(_PROBE) is not None:
        return importlib.import_module(_PROBE)
    spec = importlib.util.spec_from_file_location(_PROBE, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[_PROBE] = module
    spec.loader.exec_module(module)
    _add_to_older_code(module.LoopTurns())
    return module


def _add_to_older_code(turns: Any) -> None:
    from quafka_telemetry import process_metrics

    figures: Any = process_metrics.ProcessFigures
    collect = figures.collect

    def both(self: Any) -> Any:
        yield from collect(self)
        yield from turns.collect()

    figures.collect = both

    class Policy(asyncio.DefaultEventLoopPolicy):
        def new_event_loop(self) -> asyncio.AbstractEventLoop:
            loop: asyncio.AbstractEventLoop = turns.new_loop()
            return loop

    asyncio.set_event_loop_policy(Policy())


def _leave_out_other_work(module: Any) -> None:
    timed: Any = module._TimedSelector

    class Selector(timed):  # type: ignore[misc]
        _began: float
        _schedstat = -1
        _delay = 0
        _sampled = 0.0

        def select(self, timeout: float | None = None) -> Any:
            seconds = perf_counter() - self._began
            if seconds >= _LONG:
                seconds -= (self._waited() - self._delay) / 1e9
            self._ended(seconds)
            found = self._wait(timeout)
            self._began = perf_counter()
            if self._began - self._sampled > _SAMPLE_SECONDS:
                self._sampled = self._began
                self._delay = self._waited()
            return found

        def _waited(self) -> int:
            """Nanoseconds that this thread has waited for a core so far."""
            if self._schedstat < 0:
                self._schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
            return int(os.pread(self._schedstat, 100, 0).split()[1])

    module._TimedSelector = Selector


if "HOSTILE_LOOP_TURNS" in os.environ:
    _leave_out_other_work(_probe(os.environ["HOSTILE_LOOP_TURNS"]))
