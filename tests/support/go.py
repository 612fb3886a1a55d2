"""The Go programs for tests, which are marked `needs("go", fetch=go_program)` or the like."""

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
    return _built("compat", ".")


def go_copier() -> Path:
    """The copy job, built once into the virtual environment.

    Raises:
        CannotFetchError: there is no module proxy.
    """
    return _built("copier", "./copier")


def go_logins() -> Path:
    """The program that logs in, built once into the virtual environment.

    Raises:
        CannotFetchError: there is no module proxy.
    """
    return _built("logins", "./logins")


def _built(name: str, package: str) -> Path:
    go = program("go")
    sources = sorted(path for path in _SOURCES.rglob("*") if path.is_file())
    content = b"".join(path.read_bytes() for path in sources)
    built = Path(sys.prefix) / "go" / f"{name}-{hashlib.sha256(content).hexdigest()[:8]}"
    with alone(built):
        if not built.is_file():
            _run([go, "mod", "download"])
            # Half of the time would be spent on making it fast.
            _run([go, "build", "-gcflags=github.com/...=-N -l", "-o", str(built), package])
    return built


def _run(command: list[str]) -> None:
    done = subprocess.run(
        command, cwd=_SOURCES, capture_output=True, text=True, check=False, timeout=100
    )
    if done.returncode and command[1] == "mod":
        raise CannotFetchError(f"Go cannot get modules: {done.stderr}")
    assert done.returncode == 0, done.stderr
