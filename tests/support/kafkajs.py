"""kafkajs and the scripts that use it, installed into a folder."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.support.needs import program

_SCRIPTS = Path(__file__).parents[1] / "compat" / "kafkajs"


def install(folder: Path) -> None:
    """Needs npm and node."""
    npm = program("npm")
    for source in _SCRIPTS.iterdir():
        shutil.copy(source, folder / source.name)
    command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--silent"]
    subprocess.run(command, cwd=folder, check=True, timeout=110)
