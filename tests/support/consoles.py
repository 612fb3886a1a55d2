"""The console of a cluster, as a process."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.support.cluster import Cluster, Process


@contextmanager
def console_of(
    cluster: Cluster, folder: Path, *args: str, port: int = 0, command: tuple[str, ...] = ()
) -> Generator[tuple[str, Process]]:
    """A running console, at a free port unless one is given: its URL, and the process.

    It gives way to nobody: on a busy machine a test would wait for long.

    `command`: how `quafka` is run, if not from the repository.
    """
    pages = ",".join(
        f"http://{each.ready['operations']}" for each in (cluster.gateway, cluster.broker)
    )
    console = Process(
        ["console", "--console-nice", "0", "--console-listen", f"127.0.0.1:{port}",
         "--console-brokers", cluster.bootstrap, "--console-operations", pages, *args],
        folder / "console.log",
        command=command,
    )  # fmt: skip
    try:
        yield str(console.ready["console"]).rstrip("/"), console
    finally:
        assert console.stop() == 0, console.log.read_text()
