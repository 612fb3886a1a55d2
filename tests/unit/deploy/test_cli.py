"""The `quafka` command without running a program: help, settings, errors."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from quafka.cli import main
from quafka_mesh_ops.suggestions import did_you_mean


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"quafka {version('quafka')}\n"


def test_config_says_where_each_setting_came_from(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "q.toml"
    file.write_text("num.partitions = 3")
    monkeypatch.setenv("QUAFKA_WAL_FSYNC", "never")
    assert main(["config", "broker", "--config", str(file), "--mesh-listen", "[::1]:5"]) == 0
    rows = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert rows["num.partitions"].split() == ["3", "file", str(file)]
    assert rows["wal.fsync"].split() == ["never", "env", "QUAFKA_WAL_FSYNC"]
    assert rows["mesh.listen"].split() == ["[::1]:5", "flag", "--mesh-listen"]
    assert rows["mesh.datagram.size"].split() == ["auto", "default"]
    assert rows["node.key"].split() == ["-", "default"]


def test_a_file_is_utf_8_whatever_the_locale_says(tmp_path: Path) -> None:
    file = tmp_path / "q.toml"
    file.write_text("num.partitions = 3  # żółw", "utf-8")
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    shown = subprocess.run(
        [sys.executable, "-m", "quafka", "config", "broker", "--config", str(file)],
        check=False, env={**os.environ, **ascii_only}, capture_output=True, text=True,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr


@pytest.mark.parametrize("flag", ["--wal-f", "--wal-fsinc", "--mesh-peers"])
@pytest.mark.parametrize("command", [("broker",), ("up",), ("config", "broker")])
def test_a_flag_is_written_out_or_refused(
    capsys: pytest.CaptureFixture[str], command: tuple[str, ...], flag: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command, flag, "sometimes"])
    assert ended.value.code == 2
    assert flag in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("topcs list", "'topcs' is none of up, "),
        ("topcs list", "; did you mean topics?"),
        ("topics crate x", "; did you mean create?"),
        ("topics create x --partitons 3", "no flag '--partitons'; did you mean --partitions?"),
        ("configs set x --type=grop a=b", "; did you mean group?"),
        ("broker --wal-fsnc=never", "no flag '--wal-fsnc'; did you mean --wal-fsync?"),
        ("config up --ops", "there is no flag '--ops'\n"),
        ("topics list x", "there is no argument 'x'\n"),
        ("topics", "the following arguments are required: ACTION"),
    ],
)
def test_a_command_line_that_is_wrong(
    capsys: pytest.CaptureFixture[str], command: str, sentence: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(command.split())
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.startswith("quafka")
    assert said.splitlines()[-1].startswith("see quafka"), "and no usage of 200 flags"
    assert len(said.splitlines()) == 2


def test_a_long_name_is_not_compared_with_others() -> None:
    """Clients name configs, and the time grows with the square of the length."""
    assert did_you_mean("retention.m", ["retention.ms"]) == "; did you mean retention.ms?"
    assert did_you_mean("retention.ms" + "s" * 60, ["retention.ms" + "s" * 59]) == ""


def test_a_wrong_value_exits_2_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["broker", "--wal-fsync", "sometimes"]) == 2
    assert capsys.readouterr().err == (
        "quafka: wal.fsync = 'sometimes' (flag --wal-fsync): "
        "must be commit, interval:<ms> (1 to 60000), never\n"
    )


@pytest.mark.parametrize(
    ("key", "wrong", "allowed"),
    [
        ("transaction.max.timeout.ms", "0", "1ms to 2147483647ms"),
        ("transactional.id.expiration.ms", "0", "1ms or more"),
        ("transaction.max.ids.per.org", "10000001", "1 to 10000000"),
        ("transaction.max.partitions", "20001", "1 to 20000"),
    ],
)
def test_settings_of_transactions_are_checked(
    capsys: pytest.CaptureFixture[str], key: str, wrong: str, allowed: str
) -> None:
    flag = f"--{key.replace('.', '-')}"
    assert main(["broker", flag, wrong]) == 2
    shown = capsys.readouterr().err
    assert shown == f"quafka: {key} = '{wrong}' (flag {flag}): must be {allowed}\n"


def test_a_wrong_trace_variable_exits_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "dice")
    assert main(["broker", "--data", str(tmp_path)]) == 2
    assert "OTEL_TRACES_SAMPLER='dice'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("quafka.cli, quafka.up", "aioquic asyncio.events cryptography.x509 numpy opentelemetry"),
        ("quafka.supervisor", "argparse cryptography tomllib quafka.settings quafka_mesh_ops"),
    ],
)
def test_what_runs_beside_the_programs_or_before_them_stays_light(module: str, heavy: str) -> None:
    """The command delays both programs, and the supervisor stays in memory as long as they run."""
    code = f"import {module}, sys; print(sorted(set({heavy!r}.split()) & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"


def test_the_supervisor_loads_no_openssl() -> None:
    """It takes a fifth of the process's memory."""
    code = (
        "import runpy, sys\ntry: runpy.run_module('quafka.supervisor', run_name='__main__')\n"
        "except IndexError: print('_ssl' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "False\n"
