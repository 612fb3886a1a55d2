"""Other versions of Python packages than the virtual environment's own."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.support.alone import alone
from tests.support.needs import FETCH_SECONDS, CannotFetchError


def installed(requirement: str, *, alone_there: bool = True) -> Path:
    """A folder for PYTHONPATH with this package, installed once into the environment.

    `alone_there`: without what it depends on.

    Raises:
        CannotFetchError: pip cannot get it.
    """
    name = requirement if alone_there else f"{requirement} and its needs"
    folder = Path(sys.prefix) / "other-packages" / name
    with alone(folder):
        if not folder.is_dir():
            part = folder.with_name(f"{name}.part")
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile"]
            command += ["--no-deps"] if alone_there else []
            command += ["--disable-pip-version-check", "--target", str(part), requirement]
            try:
                subprocess.run(
                    command, capture_output=True, text=True, check=True, timeout=FETCH_SECONDS
                )
            except subprocess.SubprocessError as e:
                raise CannotFetchError(f"pip cannot install {requirement}: {e}") from e
            part.rename(folder)
    return folder


def needs_package(requirement: str, *, alone_there: bool = True) -> pytest.MarkDecorator:
    """The mark of a test that uses `installed`."""
    return pytest.mark.needs(fetch=partial(installed, requirement, alone_there=alone_there))
