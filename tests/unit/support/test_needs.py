"""Whether a test can run is decided before it opens anything; and no skip goes unnoticed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.bare import link_all
from tests.support.needs import ONLY_PATH, TOOLS, named_in

ROOT = Path(__file__).parents[3]
TESTS = """
import pytest
from pathlib import Path
from tests.support.needs import CannotFetchError

@pytest.fixture
def opened():
    Path("opened").touch()

def no_network():
    raise CannotFetchError("nothing can be fetched")

@pytest.mark.parametrize("tool", [pytest.param(t, marks=pytest.mark.needs(t)) for t in TOOLS])
def test_of_a_tool(opened, tool): ...

@pytest.mark.needs(fetch=no_network)
def test_of_a_download(opened): ...
"""


def outcome(folder: Path, tests: str, *arguments: str) -> tuple[int, str]:
    """Exit code and output of a run without any optional tool."""
    bare = folder / "bin"
    bare.mkdir()
    link_all(bare, os.environ["PATH"])
    (folder / "test_it.py").write_text(tests)
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml")]
    command += ["-p", "tests.conftest", "--override-ini", f"pythonpath={ROOT}"]
    environment = {**os.environ, "PATH": str(bare), ONLY_PATH: "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "--rootdir", str(folder), *arguments, "test_it.py"],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def test_only_what_is_not_installed_may_be_skipped_where_nothing_is(tmp_path: Path) -> None:
    without_download = TESTS.partition("@pytest.mark.needs(fetch")[0]
    code, said = outcome(tmp_path, f"TOOLS = {list(TOOLS)}" + without_download, "--bare")
    assert code == 0, said
    assert f"{len(TOOLS)} skipped" in said.splitlines()[-1]
    assert not (tmp_path / "opened").exists()


@pytest.mark.parametrize("option", ["--bare", "--forbid-skips"])
def test_other_skips_fail_the_run(tmp_path: Path, option: str) -> None:
    code, said = outcome(tmp_path, "TOOLS = ['kcat']" + TESTS, option)
    assert code == 1, said
    assert not (tmp_path / "opened").exists()
    problems = {line for line in said.splitlines() if "expected" in line or "want of" in line}
    assert any("test_of_a_download" in line for line in problems)
    assert any("kcat" in line for line in problems) == (option == "--forbid-skips")
    assert any("want of java" in line for line in problems) == (option == "--bare")
    assert "skipped" in said.splitlines()[-1], "the closing line is the last"


@pytest.mark.parametrize("workers", ["0", "2"])
def test_of_a_selection_only_what_it_needs_is_skipped(tmp_path: Path, workers: str) -> None:
    tests = "TOOLS = ['kcat']" + TESTS.partition("@pytest.mark.needs(fetch")[0]
    tests += "@pytest.mark.long\n@pytest.mark.needs('java')\ndef test_long(): ...\n"
    code, said = outcome(tmp_path, tests, "--bare", "-m", "not long", "-n", workers)
    assert code == 0, said
    assert "1 skipped" in said.splitlines()[-1]


def test_what_cannot_be_built_fails_its_test(tmp_path: Path) -> None:
    tests = TESTS.replace("raise CannotFetchError(", "raise ValueError(")
    code, said = outcome(tmp_path, "TOOLS = []" + tests)
    assert code == 1
    assert "ERROR test_it.py::test_of_a_download - ValueError: nothing can be" in said
    assert not (tmp_path / "opened").exists()


def test_a_reason_names_its_tools() -> None:
    reason = "Skipped: not installed here: java (Debian: x), mkfs.xfs (Debian: y)"
    assert named_in(reason) == {"java", "mkfs.xfs"}
    assert named_in("Skipped: it is Sunday") == set()
