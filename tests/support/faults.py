"""Errors injected into a real process's system calls, by libfiu (Debian: fiu-utils)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.needs import program


class Faults:
    """Runs a process so that its system calls can be made to fail, now and then or for a while."""

    def __init__(self, folder: Path) -> None:
        program("fiu-run")
        self._fifo = folder / "fiu"

    @property
    def command(self) -> tuple[str, ...]:
        """What to run the process with."""
        return ("fiu-run", "-x", "-f", str(self._fifo))

    @contextmanager
    def failing(self, pid: int, call: str, errno: int, probability: float = 1.0) -> Iterator[None]:
        """Make a call ("rw/writev", "sync/fdatasync") of a process fail meanwhile."""
        name = f"posix/io/{call}"
        how = f"name={name},failinfo={errno}"
        once = f"enable_random {how},probability={probability}"
        self._tell(pid, once if probability < 1 else f"enable {how}")
        yield
        self._tell(pid, f"disable name={name}")

    def _tell(self, pid: int, command: str) -> None:
        subprocess.run(
            ["fiu-ctrl", "-f", str(self._fifo), "-c", command, str(pid)],
            check=True,
            capture_output=True,
            timeout=10,
        )
