"""The Pythons of this machine: on the PATH, of pyenv, of uv."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

VERSIONS = ("3.11", "3.12", "3.13")
"""Those that are supported: the wheel is tried on each that this machine has."""
_RUNS = "import ensurepip, ssl, sys, venv; print(*sys.version_info[:2], sep='.')"


@cache
def find(version: str) -> str | None:
    """A CPython of this version, such as 3.12, that can make environments."""
    return next((path for path in _candidates(version) if _is(path, version)), None)


def _candidates(version: str) -> Iterator[str]:
    on_path = shutil.which(f"python{version}")
    if on_path is not None:
        yield on_path
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR", Path.home() / ".local/share/uv/python"))
    for folder in sorted(pyenv.glob(f"versions/{version}.*"), key=_patch, reverse=True):
        yield str(folder / "bin" / "python")
    for folder in sorted(uv.glob(f"cpython-{version}.*"), reverse=True):
        yield str(folder / "bin" / f"python{version}")


def _patch(folder: Path) -> int:
    last = folder.name.rpartition(".")[2]
    return int(last) if last.isdigit() else -1  # others are not released


def _is(path: str, version: str) -> bool:
    """Whether it runs: pyenv has a file of this name for versions that are not selected, too."""
    try:
        shown = subprocess.run([path, "-c", _RUNS], capture_output=True, text=True, check=False)
    except OSError:
        return False
    return shown.returncode == 0 and shown.stdout.strip() == version
