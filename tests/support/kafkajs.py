"""kafkajs and the scripts that use it, for tests that need node and npm."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.alone import alone
from tests.support.needs import program

_SCRIPTS = Path(__file__).parents[1] / "compat" / "kafkajs"


def installed() -> Path:
    """A folder with the scripts and kafkajs, installed once into the virtual environment."""
    sources = sorted(_SCRIPTS.iterdir())
    content = b"".join(source.read_bytes() for source in sources)
    folder = Path(sys.prefix) / f"kafkajs-{hashlib.sha256(content).hexdigest()[:8]}"
    with alone(folder):
        if not folder.is_dir():
            part = folder.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            for source in sources:
                shutil.copy(source, part / source.name)
            command = [program("npm"), "install", "--no-audit", "--no-fund", "--ignore-scripts"]
            subprocess.run([*command, "--silent"], cwd=part, check=True, timeout=110)
            part.rename(folder)
    return folder
