"""Runs a client command: one event loop, one sentence per failure, an exit code.

| exit code | |
| --- | --- |
| 0 | done |
| 1 | failed, at least in part; stderr has the reason in one sentence |
| 2 | wrong usage |
| 130 | Ctrl-C |
| 141 | the reader of the output closed the pipe |
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from types import FrameType

from quafka.client.cluster import Cluster
from quafka.client.errors import ClientError
from quafka.commands.options import UsageError, bootstrap
from quafka.commands.output import plain
from quafka.process import EXIT_INTERRUPTED

EXIT_DONE, EXIT_FAILED, EXIT_USAGE = 0, 1, 2

Work = Callable[[Cluster, argparse.Namespace], Awaitable[int]]


def with_cluster(options: argparse.Namespace, work: Work) -> int:
    """Connect, run the command, disconnect; return the exit code."""

    async def connected() -> int:
        async with Cluster(bootstrap(options), options.timeout) as cluster:
            return await work(cluster, options)

    return guarded(lambda: asyncio.run(connected()))


def guarded(work: Callable[[], int]) -> int:
    """Run some work and map its errors to exit codes. BrokenPipeError passes (see `cli.py`)."""
    try:
        code = work()
        sys.stdout.flush()
    except ClientError as e:
        complain(str(e))
        return EXIT_FAILED
    except UsageError as e:
        complain(str(e))
        return EXIT_USAGE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return code


@contextmanager
def interruptible() -> Generator[Callable[[], None]]:
    """Yield a check for a loop around C code; the check raises KeyboardInterrupt after Ctrl-C.

    Python raises KeyboardInterrupt wherever it is. In a callback from C, or while an object is
    freed, the exception is printed and lost, and the loop would go on. Main thread only.
    """
    pressed = False

    def remember(_signal: int, _frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        raise KeyboardInterrupt

    def check() -> None:
        if pressed:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, remember)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, before)


def complain(sentence: str) -> None:
    """Print an error to stderr."""
    print(f"quafka: {plain(sentence)}", file=sys.stderr)
