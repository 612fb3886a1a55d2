"""The pinned dependencies of a release: `deploy/release/constraints.txt`.

`python -m tests.release.constraints` renews it: the newest versions that `pyproject.toml` allows,
for all extras and every supported Python on Linux.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "release" / "constraints.txt"
_HEAD = """\
# The versions that this release is tested with, for all extras:
#   pip install --constraint constraints.txt quafka
# Written by `python -m tests.release.constraints`. Without hashes: with them, pip would refuse
# every package that the file does not name, Quafka itself included.
"""
_PLATFORM = " and sys_platform == 'linux'", " ; sys_platform == 'linux'"


def pins() -> list[Requirement]:
    """All of them: a name has several lines if versions of Python need different ones."""
    lines = FILE.read_text().splitlines()
    return [Requirement(line) for line in lines if line and not line.lstrip().startswith("#")]


def wanted() -> list[Requirement]:
    """The dependencies of pyproject.toml, those of every extra included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = (each for group in project["optional-dependencies"].values() for each in group)
    return [Requirement(each) for each in (*project["dependencies"], *extras)]


def names() -> list[NormalizedName]:
    """The packages that are pinned."""
    return sorted({canonicalize_name(each.name) for each in pins()})


def write() -> None:
    """Resolve the dependencies anew."""
    done = subprocess.run(
        [Path(sys.executable).parent / "uv", "pip", "compile", "--quiet", "--upgrade",
         "--all-extras", "--universal", "--python-version", "3.11", "--no-header",
         "--no-annotate", "--system-certs", "pyproject.toml"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    text = done.stdout
    for each in _PLATFORM:
        text = text.replace(each, "")
    FILE.write_text(_HEAD + text)


if __name__ == "__main__":
    write()
