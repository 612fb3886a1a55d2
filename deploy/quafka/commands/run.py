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

from quafka.commands.options import UsageError, bootstrap
from quafka.commands.output import plain
from quafka.commands.security import security_of, sends_password_in_clear
from quafka.exit_codes import EXIT_INTERRUPTED
from quafka_client.cluster import ClientCluster
from quafka_client.errors import ClientError
from quafka_client.security import ClientSecurity

EXIT_DONE, EXIT_FAILED, EXIT_USAGE = 0, 1, 2

Work = Callable[[ClientCluster, argparse.Namespace], Awaitable[int]]


def with_cluster(options: argparse.Namespace, work: Work) -> int:
    """Connect, run the command, disconnect; return the exit code."""

    async def connected() -> int:
        async with cluster_of(options) as cluster:
            return await work(cluster, options)

    return guarded(lambda: asyncio.run(connected()))


def cluster_of(options: argparse.Namespace) -> ClientCluster:
    """The cluster that a command's options name, not connected yet. Raises UsageError."""
    return ClientCluster(bootstrap(options), options.timeout, security(options))


def security(options: argparse.Namespace) -> ClientSecurity:
    """How a command connects and logs in, read once; warns if others could read the login.

    Raises:
        UsageError, ClientError: it is wrong, or a file cannot be used.
    """
    found: ClientSecurity | None = getattr(options, "security", None)
    if found is None:
        loaded = security_of(options)
        found = options.security = loaded.security
        for warning in loaded.warnings:
            complain(warning)
        for host, _ in bootstrap(options):
            if sends_password_in_clear(found, host):
                complain(f"the login travels unencrypted to {host}; use SASL_SSL, or SCRAM")
    return found


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
    freed, the exception is printed and lost, and the loop would continue. Main thread only.
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
