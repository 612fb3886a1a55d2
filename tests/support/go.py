"""The Go program for tests. Where there is no Go or no module proxy, its test is skipped."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.alone import alone

_SOURCES = Path(__file__).parents[1] / "compat" / "go"


def go_program() -> Path:
    """The program, built once into the virtual environment."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not installed (Debian: apt-get install golang-go)")
    content = b"".join(path.read_bytes() for path in sorted(_SOURCES.iterdir()))
    program = Path(sys.prefix) / "go" / f"compat-{hashlib.sha256(content).hexdigest()[:8]}"
    with alone(program):
        if not program.is_file():
            _run([go, "mod", "download"])
            # Half of the time would be spent on making it fast.
            _run([go, "build", "-gcflags=github.com/...=-N -l", "-o", str(program), "."])
    return program


def _run(command: list[str]) -> None:
    done = subprocess.run(
        command, cwd=_SOURCES, capture_output=True, text=True, check=False, timeout=100
    )
    if done.returncode and command[1] == "mod":
        pytest.skip(f"Go cannot get modules: {done.stderr}")
    assert done.returncode == 0, done.stderr
