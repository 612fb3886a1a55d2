"""kafkajs and the scripts that use it, installed into a folder."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

_SCRIPTS = Path(__file__).parents[1] / "compat" / "kafkajs"


def install(folder: Path) -> None:
    """Skips where there is no npm."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed (Debian: apt-get install nodejs npm)")
    for source in _SCRIPTS.iterdir():
        shutil.copy(source, folder / source.name)
    command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--silent"]
    subprocess.run(command, cwd=folder, check=True, timeout=110)
