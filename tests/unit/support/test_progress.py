"""What a person sees of a run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.progress import Tally, clock, folder_of

ROOT = Path(__file__).parents[3]
TESTS = """
import pytest
def test_good(): ...
def test_skipped(): pytest.skip("not today")
def test_bad(): assert 1 == 2
"""


def report(nodeid: str, seconds: float, outcome: str = "passed") -> pytest.TestReport:
    location = (nodeid.partition("::")[0], 0, "test")
    return pytest.TestReport(
        nodeid, location, {}, outcome, None, "call", duration=seconds  # type: ignore[arg-type]
    )  # fmt: skip


def test_a_folder_is_over_with_its_last_test() -> None:
    tally = Tally()
    tests = ["tests/unit/a/b/test_x.py::test_1", "tests/unit/a/test_y.py::test_2[a/b::c]"]
    tally.collected([*tests, "tests/sim/test_z.py::test_3"])
    for nodeid in tests:
        tally.started(nodeid)
    tally.reported(report(tests[0], 0.5))
    assert tally.finished(tests[0]) is None
    assert tally.finished(tests[0]) is None, "a repetition does not count"
    assert tally.state(61) == "1:01   33%  1/3 tests, 0 failed  unit/a 1/2"
    tally.reported(report(tests[1], 2.0, "failed"))
    assert tally.finished(tests[1]) == "tests/unit/a"
    assert "2 tests, 1 failed" in tally.folder_line("tests/unit/a", 61)
    assert tally.state(61).endswith("2/3 tests, 1 failed")
    assert [line.split()[-1] for line in tally.slowest()] == tests[::-1]
    assert tally.by_folder() == ["    2.5 s       2 tests  tests/unit/a"]


def test_folders_and_times() -> None:
    assert folder_of("tests/unit/gateway/sasl/test_x.py::test_y[a/b]") == "tests/unit/gateway"
    assert folder_of("test_x.py::test_y") == "."
    assert clock(754.9) == "12:34"


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_run_into_a_file(tmp_path: Path, workers: str) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml")]
    command += ["-p", "tests.conftest", "--override-ini", f"pythonpath={ROOT}"]
    command += ["--rootdir", str(tmp_path), "-n", workers, "test_it.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    failure = "FAILED (call) test_it.py::test_bad: assert 1 == 2"
    assert failure in lines
    folder = next(line for line in lines if line.endswith("3 tests, 1 failed, 1 skipped"))
    assert lines.index(failure) < lines.index(folder) < lines.index(_title(lines, "slowest"))
    assert any(line.startswith("FAILED test_it.py::test_bad") for line in lines)
    assert "1 failed, 1 passed, 1 skipped" in lines[-1]


def _title(lines: list[str], word: str) -> str:
    return next(line for line in lines if line.startswith("=") and word in line)
