"""Runs a command where none of the optional tools can be found, as on a new machine.

`python -m tests.support.bare COMMAND...`: the PATH is one folder with a link to every program that
is on this machine's PATH, but for those in `needs.TOOLS` and what belongs to them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.needs import ONLY_PATH, TOOLS

_BESIDE = {"chromium-browser", "docker", "fiu-ctrl", "jaeger", "javac", "nodejs", "npx"}
_VARIABLES = ("JAEGER_BINARY", "JAVA_HOME")


def link_all(folder: Path, path: str) -> None:
    """Fill the folder; of two programs with one name the first on the path counts."""
    for place in path.split(":"):
        if not Path(place).is_dir():
            continue
        for program in sorted(Path(place).iterdir()):
            link = folder / program.name
            wanted = program.name not in TOOLS and program.name not in _BESIDE
            if wanted and not link.is_symlink() and os.access(program, os.X_OK):
                link.symlink_to(program)


def main() -> int:
    """The command's exit code."""
    with tempfile.TemporaryDirectory(prefix="quafka-bare-") as folder:
        link_all(Path(folder), os.environ["PATH"] + ":/usr/sbin:/sbin")
        environment = {name: v for name, v in os.environ.items() if name not in _VARIABLES}
        environment |= {"PATH": folder, ONLY_PATH: "1"}
        return subprocess.run(sys.argv[1:], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
