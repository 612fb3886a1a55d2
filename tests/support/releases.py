"""Earlier releases of Quafka, to run beside today's code and on its data.

`releases/WHEEL.xz` is the wheel of a release, with its members stored: xz compresses them together,
to half of a wheel's usual size. A release runs with the packages of this environment:

    python -m tests.support.releases COMMIT VERSION     # makes WHEEL.xz of a commit, reproducibly
"""

from __future__ import annotations

import io
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from tests.support.alone import alone

_ROOT = Path(__file__).parents[2]
_WHEELS = Path(__file__).parent / "releases"
_NAME = "quafka-{}-py3-none-any.whl"
_DATE = (1980, 1, 1, 0, 0, 0)
LAST = "0.1.0.dev1"
"""The last release. It is commit 1b889c07, under a version of its own."""


def release(version: str = LAST) -> tuple[str, ...]:
    """The command that runs a Python command with a release, which it unpacks if needed."""
    folder = Path(sys.prefix) / "releases" / version
    with alone(folder):
        if not folder.exists():
            unfinished = folder.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            wheel = lzma.decompress((_WHEELS / f"{_NAME.format(version)}.xz").read_bytes())
            zipfile.ZipFile(io.BytesIO(wheel)).extractall(unfinished)
            unfinished.rename(folder)
    return "env", f"PYTHONPATH={folder}"


def _make(commit: str, version: str) -> Path:
    """Build the wheel of a commit with pip, and store it."""

    def git(*args: str) -> bytes:
        return subprocess.check_output(["git", *args], cwd=_ROOT)

    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "source"
        with tarfile.open(fileobj=io.BytesIO(git("archive", commit))) as archive:
            archive.extractall(source, filter="data")
        project = source / "pyproject.toml"
        text = re.sub(r'^version = ".*"', f'version = "{version}"', project.read_text(), flags=re.M)
        project.write_text(text)
        date = git("show", "--no-patch", "--format=%ct", commit).decode().strip()
        subprocess.run(
            [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", scratch, source],
            env={**os.environ, "SOURCE_DATE_EPOCH": date},
            check=True,
        )
        stored = io.BytesIO()
        built = zipfile.ZipFile(Path(scratch) / _NAME.format(version))
        with zipfile.ZipFile(stored, "w") as copy:
            for member in sorted(built.namelist()):
                copy.writestr(zipfile.ZipInfo(member, _DATE), built.read(member))
    path = _WHEELS / f"{_NAME.format(version)}.xz"
    path.write_bytes(lzma.compress(stored.getvalue(), preset=9 | lzma.PRESET_EXTREME))
    return path


if __name__ == "__main__":
    print(_make(*sys.argv[1:]))
