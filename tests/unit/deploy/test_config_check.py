"""`quafka config check FILE`: every error at once, each with its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from quafka.cli import main
from quafka.config_check import Fault, check

WRONG = """\
num.partitions = 3
[wal]
fsync = "sometimes"
segment.bytess = 5
[mesh]
allow = [
  "a",
]
peers = [
  "x",
]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "quafka.toml"


def test_every_error_has_its_line_and_the_allowed_values(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUAFKA_NO_SUCH", "the environment is not read")
    file.write_text(WRONG)
    assert main(["config", "check", str(file)]) == 2
    shown = capsys.readouterr()
    assert not shown.out
    lines = shown.err.splitlines()
    assert [line.split(": ")[0] for line in lines] == [f"{file}:{n}" for n in (3, 4, 8, 11)]
    assert "wal.fsync = 'sometimes': must be" in lines[0]
    assert "wal.segment.bytess is not a setting; did you mean wal.segment.bytes?" in lines[1]


def test_a_file_without_errors(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("num.partitions = 3\n[wal]\nsegment.bytes = '1GiB'\n")
    assert main(["config", "check", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}: 2 settings, no errors\n"
    assert main(["config", "check", str(file), "--for", "gateway", "--format", "json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert [(fault["line"], fault["name"]) for fault in document["faults"]] == [
        (1, "num.partitions"), (3, "wal.segment.bytes"),
    ]  # fmt: skip
    assert "is not a setting of gateway, but of broker, up" in document["faults"][0]["error"]


def test_what_is_hostile(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for content, why in ((b"\xff", "not UTF-8"), (b"a = " + b"[" * 100_000, "too deeply")):
        file.write_bytes(content)
        assert main(["config", "check", str(file), "--format", "json"]) == 2
        (fault,) = json.loads(capsys.readouterr().out)["faults"]
        assert why in fault["error"]
    assert main(["config", "gateway", "--config", str(file)]) == 2
    assert "too deeply" in capsys.readouterr().err
    file.write_text('"\\u001b[31m" = 1\n')
    assert main(["config", "check", str(file)]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_what_is_not_toml() -> None:
    _, faults = check("a = 1\nb = = 2\n")
    assert faults == [Fault(None, None, "not TOML: Invalid value (at line 2, column 5)")]


@pytest.mark.parametrize("content", [b"\xff", None])
def test_a_file_that_cannot_be_read(
    file: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    if content is not None:
        file.write_bytes(content)
    assert main(["config", "check", str(file)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
