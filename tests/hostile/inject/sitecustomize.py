"""Runs in the processes of a stage before anything else, found through PYTHONPATH.

It changes what `quafka_loop_longest_turn_seconds` means there: what a turn cost, however much else
the machine has to do. That is its time without the time for which a thread of the process was
runnable and had no core (proc(5), schedstat), or the CPU time of all threads meanwhile, whichever
is longer, and at most the turn without its own thread's waiting. So a turn that blocks counts, and
one that waits for another thread of its own process, but not for a stranger. The longest turn by
the clock is `hostile_loop_longest_turn_seconds`. Code of before that metric gets it here.

With `HOSTILE_STACKS`, a timer looks at the loop every few milliseconds, and the stacks of each
turn that was longer than all since the last reading are in that file (the process' id behind it).
"""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import os
import signal
import sys
import threading
import traceback
from collections import Counter
from contextlib import suppress
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

_SHORT = 0.001
_LONG = 0.03
_SAMPLE_SECONDS = 0.005
_PROBE = "quafka_telemetry.loop_turns"
_STACKS = "HOSTILE_STACKS"
_FRAMES = 7


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


class _Cost:
    """What a turn costs this process. Made in the loop's thread."""

    def __init__(self) -> None:
        self._own = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        self._files: dict[str, int] = {}
        self._found: dict[str, int] = {}
        """By thread; those that have ended count."""
        self.look()

    def look(self) -> None:
        """A turn begins soon, or has begun."""
        self._before = self._waited(), self._all_waited()
        self._cpu = process_time()

    def of(self, wall: float) -> float:
        """The cost of the turn that now ends after so many seconds by the clock."""
        own, all_of_them = self._before
        mine = wall - (self._waited() - own) / 1e9
        blocked = wall - (self._all_waited() - all_of_them) / 1e9
        return max(min(process_time() - self._cpu, mine), blocked, 0.0)

    def _waited(self) -> int:
        """Nanoseconds for which this thread has waited for a core."""
        return int(os.pread(self._own, 100, 0).split()[1])

    def _all_waited(self) -> int:
        """The sum of all threads of the process."""
        with os.scandir("/proc/self/task") as threads:
            names = {each.name for each in threads}
        for name in names - self._files.keys():
            with suppress(FileNotFoundError):  # it has ended
                path = f"/proc/self/task/{name}/schedstat"
                self._files[name] = os.open(path, os.O_RDONLY)
        for name, file in list(self._files.items()):
            try:
                self._found[name] = int(os.pread(file, 100, 0).split()[1])
            except ProcessLookupError:
                os.close(self._files.pop(name))
        return sum(self._found.values())


class _Stacks:
    """What the loop's thread was at in its longest turn."""

    def __init__(self, path: str) -> None:
        self._path = Path(f"{path}.{os.getpid()}")
        self._loop = threading.get_ident()  # the main thread
        self._seen: Counter[str] = Counter()
        self.began = 0.0
        """The turn's beginning; 0 while the loop waits."""
        self._collecting = 0.0
        self._collected = 0.0
        gc.callbacks.append(self._garbage)
        # Not from another thread: walking the frames of a running one may crash Python 3.11.
        signal.signal(signal.SIGPROF, self._look)
        signal.setitimer(signal.ITIMER_PROF, _SAMPLE_SECONDS, _SAMPLE_SECONDS)

    def ended(self, seconds: float, wall: float, *, longest: bool) -> None:
        """A turn has ended; write what was seen where it is the longest."""
        self.began = 0.0
        seen, self._seen = self._seen, Counter()
        collected, self._collected = self._collected, 0.0
        if not longest:
            return
        with self._path.open("a") as file:
            file.write(
                f"\n---- {seconds * 1000:.0f} ms, {wall * 1000:.0f} by the clock,"
                f" {collected * 1000:.0f} of them in the garbage collector\n"
            )
            for stack, count in seen.most_common(5):
                file.write(f"{count:3} {stack}\n")

    def _look(self, _number: int, frame: Any) -> None:
        began = self.began
        if began and perf_counter() - began > 2 * _SAMPLE_SECONDS:
            stack = traceback.extract_stack(frame)[-_FRAMES:]
            places = (f"{Path(at.filename).name}:{at.lineno} {at.name}" for at in stack)
            self._seen["\n    ".join(places)] += 1

    def _garbage(self, phase: str, _info: object) -> None:
        if threading.get_ident() == self._loop:
            if phase == "start":
                self._collecting = perf_counter()
            else:
                self._collected += perf_counter() - self._collecting


_by_clock: dict[Any, float] = {}
"""The longest turn since the last reading, by its `LoopTurns`."""


def _show_clock(module: Any) -> None:
    collect = module.LoopTurns.collect

    def both(self: Any) -> Any:
        yield from collect(self)
        longest = _by_clock.pop(self, 0.0)
        yield module.gauge("hostile_loop_longest_turn_seconds", "By the clock", longest)

    module.LoopTurns.collect = both


class _Measured:
    """The methods of the selector in place of those of the product's."""

    _ended: Any
    _wait: Any
    _began: float
    _cost: _Cost | None = None
    _stacks: _Stacks | None = None
    _looked = 0.0

    def select(self, timeout: float | None = None) -> Any:
        wall = perf_counter() - self._began
        if wall >= _SHORT:
            self._over(wall)
        if self._stacks is not None:
            self._stacks.began = 0.0
        found = self._wait(timeout)
        self._began = now = perf_counter()
        if now - self._looked > _SAMPLE_SECONDS:
            self._looked = now
            self._look()
        if self._stacks is not None:
            self._stacks.began = now
        return found

    def _over(self, wall: float) -> None:
        turns = self._ended.__self__
        _by_clock[turns] = max(_by_clock.get(turns, 0.0), wall)
        long = wall >= _LONG and self._cost is not None
        seconds = self._cost.of(wall) if long and self._cost is not None else wall
        if self._stacks is not None:
            self._stacks.ended(seconds, wall, longest=long and seconds > turns._longest)
        self._ended(seconds)

    def _look(self) -> None:
        if self._cost is not None:
            self._cost.look()
            return
        self._cost = _Cost()
        if _STACKS in os.environ:
            self._stacks = _Stacks(os.environ[_STACKS])


def _leave_out_other_work(module: Any) -> None:
    module._TimedSelector = type("Selector", (_Measured, module._TimedSelector), {})


if "HOSTILE_LOOP_TURNS" in os.environ:
    _module = _probe(os.environ["HOSTILE_LOOP_TURNS"])
    _show_clock(_module)
    _leave_out_other_work(_module)
