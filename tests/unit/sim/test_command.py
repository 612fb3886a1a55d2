"""`python -m tests.sim.checkers FILE`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.sim.checkers.__main__ import main
from tests.unit.sim.script import Script


def _checked(script: Script, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    file = folder / "history.jsonl"
    file.write_text(script.history.dumps())
    monkeypatch.setattr(sys, "argv", ["checkers", str(file)])
    return main()


def test_a_file_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _checked(Script().write("x", at=0).final((0, "x")), tmp_path, monkeypatch) == 0
    assert capsys.readouterr().out == ""
    assert _checked(Script().write("x", at=0).final(), tmp_path, monkeypatch) == 1
    lost = "lost: 'x' was in a-0 at 0; a final read"
    assert capsys.readouterr().out == (
        f"{lost} (read_uncommitted) finds None there (events 2, 4)\n"
        f"{lost} (read_committed) finds None there (events 2, 6)\n"
    )
