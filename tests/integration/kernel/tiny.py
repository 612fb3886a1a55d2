"""A tiny program under `quafka.process.run`: `tiny.py HOW READY_FD LIFELINE_FD`."""

import asyncio
import gc
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

from quafka import logs, process
from quafka_telemetry.metrics import Metrics
from quafka_telemetry.startup import StartupError
from quafka_telemetry.tracing import Tracer


class _Cycle:
    def __init__(self) -> None:
        self.itself = self


async def _search_old_ones() -> None:
    """Print whether cycles that were used for long are freed while other objects are made."""
    before = gc.get_freeze_count()  # Python 3.12 begins with some
    while gc.get_freeze_count() == before:  # what is there at the start is set aside
        await asyncio.sleep(0.01)
    old = [_Cycle() for _ in range(20_000)]
    last = weakref.ref(old[-1])
    others: list[list[int]] = []
    for _ in range(2):
        for _ in range(100):
            others += [[number] for number in range(5_000)]
            await asyncio.sleep(0)
        old.clear()
    print("kept" if last() else "freed", flush=True)


class Tiny:
    """Prints each call to it. HOW decides what fails."""

    def __init__(self, how: str) -> None:
        self._how = how
        self.metrics = Metrics()

    async def start(self) -> None:
        if self._how == "refuses":
            raise StartupError("the disk is made of cheese")
        if self._how in ("starts-for-ever", "recovers-for-ever", "recovers"):
            print("starting", flush=True)
            await asyncio.sleep(0.3 if self._how == "recovers" else 3600)
        if self._how == "leaves-a-thread":
            asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
        if self._how == "leaves-a-pool":
            ThreadPoolExecutor(1).submit(threading.Event().wait)
        if self._how.startswith("cycles"):
            self._searching = asyncio.create_task(_search_old_ones())
        if self._how == "loop-error":
            asyncio.get_running_loop().call_soon(int, "cheese")

    async def reload(self) -> None:
        print("reloading", flush=True)
        if self._how == "cannot-reload":
            raise ValueError("no cheese")

    async def close(self) -> None:
        print("closing", flush=True)
        if self._how == "hangs":
            await asyncio.sleep(60)
        print("closed", flush=True)

    def describe(self) -> dict[str, str]:
        return {"listen": "here:1"}


def main(how: str, *fds: str) -> int:
    logs.configure("info", "console")
    ready, lifeline = (int(fd) if fd else None for fd in fds)
    # Keeps the tests of deadlines short.
    process._DRAIN_SECONDS = 0.3
    process._START_SECONDS = 60 if how == "recovers" else 0.3
    process._LEAVE_SECONDS = 0.3 if how.startswith("leaves-") else 60
    return process.run(
        Tiny(how), Tracer(), ready, lifeline, keeps_state="recovers" in how,
        leaves_cycles=how == "cycles-left",
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
