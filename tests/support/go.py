"""The Go programs for tests, which are marked `needs("go", fetch=go_program)` or the like."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from tests.support.alone import alone
from tests.support.needs import FETCH_SECONDS, CannotFetchError, program

_CLIENTS = Path(__file__).parents[1] / "compat" / "go"
_PORCUPINE = Path(__file__).parents[1] / "sim" / "porcupine"
_KUBERNETES = Path(__file__).parents[1] / "integration" / "kubernetes"
_SUFFIXES = {".go", ".mod", ".sum"}


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


def go_porcupine() -> Path:
    """The checker of linearisability, built once into the virtual environment.

    Raises:
        CannotFetchError: there is no module proxy.
    """
    return _built("porcupine", ".", _PORCUPINE, fast=True)


def go_kubernetes() -> Path:
    """The validation of Kubernetes' server, built once into the virtual environment.

    Raises:
        CannotFetchError: there is no module proxy.
    """
    return _built("kubernetes", ".", _KUBERNETES)


def _built(name: str, package: str, folder: Path = _CLIENTS, *, fast: bool = False) -> Path:
    go = program("go")
    sources = sorted(path for path in folder.rglob("*") if path.suffix in _SUFFIXES)
    content = b"".join(path.read_bytes() for path in sources)
    built = Path(sys.prefix) / "go" / f"{name}-{hashlib.sha256(content).hexdigest()[:8]}"
    with alone(built):
        if not built.is_file():
            _run([go, "mod", "download"], folder)
            # Half of the time would be spent on making it fast.
            flags = [] if fast else ["-gcflags=all=-N -l", "-ldflags=-s -w"]
            _run([go, "build", *flags, "-o", str(built), package], folder)
    return built


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=FETCH_SECONDS
    )
    if done.returncode and command[1] == "mod":
        raise CannotFetchError(f"Go cannot get modules: {done.stderr}")
    assert done.returncode == 0, done.stderr
