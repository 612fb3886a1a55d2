"""Fixtures for clients that must be installed first."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "kafkajs"


@pytest.fixture(scope="session")
def kafkajs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the scripts and kafkajs installed; skips where there is no npm."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed (Debian: apt-get install nodejs npm)")
    folder = tmp_path_factory.mktemp("kafkajs")
    for source in HERE.iterdir():
        shutil.copy(source, folder / source.name)
    command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--silent"]
    subprocess.run(command, cwd=folder, check=True, timeout=110)
    return folder
