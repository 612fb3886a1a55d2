"""Builds the sdist, and from it the wheel; the same sources give the same bytes.

Timestamps in both are those of the commit (`SOURCE_DATE_EPOCH`, reproducible-builds.org).
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
_UNCOMMITTED = "what is not committed is not in the build"


class ReleaseError(Exception):
    """A step of the release has failed; one sentence says why."""


def sources(folder: Path) -> int:
    """Write the files of the last commit to the folder; when it was made, in Unix seconds."""
    if _git("status", "--porcelain"):
        print(f"warning: {_UNCOMMITTED}", file=sys.stderr)
    archive = folder.with_suffix(".tar")
    _git("archive", "--output", str(archive), "HEAD")
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
    archive.unlink()
    return int(_git("log", "-1", "--format=%ct"))


def build(source: Path, at: int, into: Path) -> list[Path]:
    """Build both with the tools of this environment; the sdist and the wheel."""
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", into, source],
        env={**os.environ, "SOURCE_DATE_EPOCH": str(at)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise ReleaseError(f"the build fails: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    (sdist,), (wheel,) = into.glob("*.tar.gz"), into.glob("*.whl")
    return [sdist, wheel]


def digests(files: list[Path]) -> dict[str, str]:
    """The SHA-256 of each file, by its name."""
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
