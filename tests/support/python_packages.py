"""Other versions of Python packages than the virtual environment's own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.alone import alone


def installed(requirement: str) -> Path:
    """A folder for PYTHONPATH with this package alone, installed once into the environment."""
    folder = Path(sys.prefix) / "other-packages" / requirement
    with alone(folder):
        if not folder.is_dir():
            part = folder.with_name(f"{requirement}.part")
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
            command += ["--disable-pip-version-check", "--target", str(part), requirement]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
            if done.returncode:
                pytest.skip(f"pip cannot install {requirement}: {done.stderr[-200:]}")
            part.rename(folder)
    return folder
