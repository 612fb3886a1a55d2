"""The Go program for tests, which are marked `needs("go", fetch=go_program)`."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from tests.support.alone import alone
from tests.support.needs import CannotFetchError, program

_SOURCES = Path(__file__).parents[1] / "compat" / "go"


def go_program() -> Path:
    """The program, built once into the virtual environment.

    Raises:
        CannotFetchError: there is no module proxy.
    """
    go = program("go")
    content = b"".join(path.read_bytes() for path in sorted(_SOURCES.iterdir()))
    built = Path(sys.prefix) / "go" / f"compat-{hashlib.sha256(content).hexdigest()[:8]}"
    with alone(built):
        if not built.is_file():
            _run([go, "mod", "download"])
            # Half of the time would be spent on making it fast.
            _run([go, "build", "-gcflags=github.com/...=-N -l", "-o", str(built), "."])
    return built


def _run(command: list[str]) -> None:
    done = subprocess.run(
        command, cwd=_SOURCES, capture_output=True, text=True, check=False, timeout=100
    )
    if done.returncode and command[1] == "mod":
        raise CannotFetchError(f"Go cannot get modules: {done.stderr}")
    assert done.returncode == 0, done.stderr
