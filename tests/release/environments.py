"""Installs the wheel as users do: in clean environments, by uvx and by pipx."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.release.build import ReleaseError

_BIN = Path(sys.executable).parent
_MEBIBYTE = 1 << 20


def variables(folder: Path) -> dict[str, str]:
    """The environment of commands: nothing of the repository is found, files are in the folder."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV") and not name.startswith("QUAFKA_")
    }
    kept["PATH"] = f"{_BIN}{os.pathsep}{kept.get('PATH', '')}"  # pipx finds uv
    kept["UV_SYSTEM_CERTS"] = "1"  # as pip does; some networks have an authority of their own
    own = {"PIPX_HOME": "pipx", "PIPX_BIN_DIR": "pipx-bin", "UV_TOOL_DIR": "uv-tools"}
    return kept | {name: str(folder / place) for name, place in own.items()}


def clean(
    folder: Path, python: str, wheel: Path, extras: str, constraints: Path, env: dict[str, str]
) -> Path:
    """An environment with the wheel, its extras and the pinned dependencies; its Python."""
    own = folder / "bin" / "python"
    command([_BIN / "uv", "venv", "--quiet", "--python", python, folder], env)
    wanted = f"quafka{extras} @ {wheel.as_uri()}"
    pip: list[str | Path] = [_BIN / "uv", "pip"]
    command([*pip, "install", "--quiet", "--python", own, "--constraint", constraints, wanted], env)
    command([*pip, "check", "--quiet", "--python", own], env)
    return own


def by_uvx(wheel: Path, python: str, constraints: Path) -> list[str]:
    """The command that runs the wheel by uvx."""
    uvx = [_BIN / "uvx", "--quiet", "--python", python, "--constraints", constraints]
    return [*map(str, uvx), "--from", str(wheel), "quafka"]


@contextmanager
def index(folder: Path, wheel: Path) -> Iterator[str]:
    """Serve a package index (PEP 503) with the wheel alone; its URL."""
    place = folder / "index" / "simple" / "quafka"
    place.mkdir(parents=True)
    (place / wheel.name).hardlink_to(wheel)
    handler = functools.partial(_Quiet, directory=str(folder / "index"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/simple/"
    finally:
        server.shutdown()
        server.server_close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        pass


def from_index(url: str, python: str, constraints: Path) -> list[str]:
    """`uvx quafka`, with one more index than PyPI."""
    uvx = [_BIN / "uvx", "--quiet", "--python", python, "--constraints", constraints]
    return [*map(str, uvx), "--index", url, "quafka"]


def by_pipx(wheel: Path, python: str, constraints: Path, env: dict[str, str]) -> list[str]:
    """Install the wheel by pipx; the command that it made."""
    pinned = f"--pip-args=--constraint={constraints}"
    command([_BIN / "pipx", "install", "--quiet", "--python", python, pinned, wheel], env)
    return [str(Path(env["PIPX_BIN_DIR"]) / "quafka")]


def size(folder: Path) -> str:
    """What the files of an environment take, in MiB."""
    total = sum(each.lstat().st_size for each in folder.rglob("*") if each.is_file())
    return f"{total / _MEBIBYTE:.1f} MiB"


def command(arguments: list[str | Path], env: dict[str, str]) -> None:
    """Run a command that must succeed. Raises ReleaseError."""
    done = subprocess.run(arguments, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        words = " ".join(map(str, arguments))
        raise ReleaseError(f"{words}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
