"""`python -m tests.bench.counted REPORT PYTHON -m MODULE ...`: a process that counts its calls.

SIGUSR1 begins to count the function calls of the main thread, which runs the event loop; SIGUSR2
ends it and writes the report. Until then it costs nothing.
"""

from __future__ import annotations

import cProfile
import json
import runpy
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import CodeType
from typing import NamedTuple

NAMED = ("_run_once", "create_task", "call_at", "create_future", "run_in_executor")
"""Functions of asyncio that are counted one by one: turns, tasks, timers, futures, threads."""
_GIVE_UP_SECONDS = 10.0


class Function(NamedTuple):
    """Calls of one function, and the CPU seconds spent in itself."""

    name: str
    calls: int
    seconds: float


class Counts(NamedTuple):
    """What the loop's thread has called."""

    python: int
    builtin: int
    named: dict[str, int]
    functions: list[Function]

    @classmethod
    def of(cls, profile: cProfile.Profile) -> Counts:
        """The calls that a profile has seen."""
        python, builtin = 0, 0
        named = dict.fromkeys(NAMED, 0)
        functions: list[Function] = []
        for entry in profile.getstats():
            code = entry.code
            if isinstance(code, CodeType):
                python += entry.callcount
                if code.co_name in named and "asyncio" in code.co_filename:
                    named[code.co_name] += entry.callcount
                place = "/".join(Path(code.co_filename).parts[-2:])
                name = f"{place}:{code.co_firstlineno} {code.co_name}"
            else:
                builtin += entry.callcount
                name = str(code)
            functions.append(Function(name, entry.callcount, entry.inlinetime))
        functions.sort(key=lambda each: -each.seconds)
        return cls(python, builtin, named, functions)

    @classmethod
    def read(cls, report: Path) -> Counts:
        """Wait for a report and read it."""
        give_up = time.monotonic() + _GIVE_UP_SECONDS
        while not report.exists():
            if time.monotonic() > give_up:
                raise RuntimeError(f"no report {report}")
            time.sleep(0.05)
        python, builtin, named, functions = json.loads(report.read_text())
        report.unlink()
        return cls(python, builtin, named, [Function(*each) for each in functions])


def main(report: str, _python: str, _m: str, module: str, *arguments: str) -> None:
    """Run the module as its own program."""
    profiles: list[cProfile.Profile] = []

    def begin(_number: int, _frame: object) -> None:
        profiles.append(cProfile.Profile(time.thread_time))
        profiles[-1].enable()

    def end(_number: int, _frame: object) -> None:
        profiles[-1].disable()
        part = Path(f"{report}.part")
        part.write_text(json.dumps(Counts.of(profiles.pop())))
        part.rename(report)

    signal.signal(signal.SIGUSR1, begin)
    signal.signal(signal.SIGUSR2, end)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def command(report: Path) -> Sequence[str]:
    """What to put before a command of Python."""
    return sys.executable, "-m", __name__, str(report)


if __name__ == "__main__":
    main(*sys.argv[1:])
