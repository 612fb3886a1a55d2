"""How every client command runs: one loop, one sentence where it fails, an exit code.

| exit code | |
| --- | --- |
| 0 | done |
| 1 | not done, or not all of it; stderr says why in one sentence |
| 2 | the command cannot be understood |
| 130 | Ctrl-C |
| 141 | nobody reads the output any more |
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable

from quafka.client.cluster import Cluster
from quafka.client.errors import ClientError
from quafka.commands.options import UsageError, bootstrap
from quafka.commands.output import plain
from quafka.process import EXIT_INTERRUPTED

EXIT_DONE, EXIT_FAILED, EXIT_USAGE = 0, 1, 2

Work = Callable[[Cluster, argparse.Namespace], Awaitable[int]]


def with_cluster(options: argparse.Namespace, work: Work) -> int:
    """Connect, do it, hang up; the exit code."""

    async def connected() -> int:
        async with Cluster(bootstrap(options), options.timeout) as cluster:
            return await work(cluster, options)

    return guarded(lambda: asyncio.run(connected()))


def guarded(work: Callable[[], int]) -> int:
    """The exit code of some work, however it ends; but for who does not read (`cli.py`)."""
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


def complain(sentence: str) -> None:
    """Say on stderr what is wrong."""
    print(f"quafka: {plain(sentence)}", file=sys.stderr)
