"""Runs the tests on other versions of Python, where this machine has them.

`python -m tests.release.suite 3.12,3.13 ARGUMENTS...`: each version has an environment of its own
below this one, made once for each `pyproject.toml`. It runs the tests as `make test-bare` does,
with these arguments of pytest. A version that is not here is named and left out.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from tests.release import interpreters

ROOT = Path(__file__).parents[2]
_EXTRAS = "avro,console,redis,s3,spark"


def environment(version: str, python: str) -> Path:
    """The Python of an environment with the product and what its tests need."""
    folder = Path(sys.prefix) / f"python-{version}"
    installed = folder / ".installed"
    wanted = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    if not installed.exists() or installed.read_text() != wanted:
        print(f"installing Quafka and its tests' needs for Python {version} ...", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([python, "-m", "venv", folder], check=True)
        pip: list[str | Path] = [folder / "bin" / "python", "-m", "pip", "install", "--quiet"]
        pip += ["--disable-pip-version-check"]
        subprocess.run([*pip, "pip>=25.1"], check=True)  # earlier ones know no dependency groups
        subprocess.run(
            [*pip, "-e", f".[{_EXTRAS}]", "--group", "test", "--group", "release"],
            cwd=ROOT, check=True,
        )  # fmt: skip
        installed.write_text(wanted)
    return folder / "bin" / "python"


def run(version: str, arguments: list[str]) -> int:
    """Run the tests on one version; the exit code."""
    python = interpreters.find(version)
    if python is None:
        print(f"Python {version} is not on this machine: no tests on it", flush=True)
        return 0
    own = str(environment(version, python))
    print(f"== the tests on Python {version} ({python})", flush=True)
    command = [own, "-m", "tests.support.bare", own, "-m", "pytest", "--bare", *arguments]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def main(versions: str, *arguments: str) -> int:
    """Run them one after the other, up to the first that fails; its exit code."""
    return next(filter(None, (run(each, [*arguments]) for each in versions.split(","))), 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
