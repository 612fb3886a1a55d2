"""`make spark-versions`: the Spark tests on each PySpark that is supported, one after the other.

Each has an environment of its own below this one, made once, which sees this one's packages but for
PySpark's.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

VERSIONS = ("4.0", "4.1", "4.2", "4.3")
# Older ones leave sockets of their workers open.
QUIET = ("-W", "ignore::ResourceWarning", "-W", "ignore::pytest.PytestUnraisableExceptionWarning")
TESTS = ("tests/spark/test_batch.py", "tests/spark/test_stream.py")


def python_with(version: str) -> Path:
    """The Python of an environment with this PySpark."""
    folder = Path(sys.prefix) / f"pyspark-{version}"
    python = folder / "bin" / "python"
    if not (folder / ".installed").exists():
        venv.create(folder, with_pip=True)
        beside = sysconfig.get_path("purelib", vars={"base": str(folder)})
        # What is not in the environment itself is found in this one.
        outer = sysconfig.get_path("purelib")
        (Path(beside) / "zz_outer.pth").write_text(f"import site; site.addsitedir({outer!r})\n")
        pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, "--ignore-installed", f"pyspark=={version}.*"], check=True)
        (folder / ".installed").touch()
    return python


def main(arguments: list[str]) -> int:
    """Run them; the number of versions that fail."""
    failed = 0
    for version in VERSIONS:
        python = str(python_with(version))
        found = "import pyspark; print(pyspark.__version__)"
        print(f"== PySpark {subprocess.check_output([python, '-c', found], text=True)}", flush=True)
        command = [python, "-m", "pytest", "-q", *QUIET, *(arguments or TESTS)]
        failed += subprocess.run(command, check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
