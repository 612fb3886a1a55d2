"""Completion scripts and the manual page, which are made from the parser."""

from __future__ import annotations

import io
import os
import subprocess
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from quafka.cli import main
from quafka.commands.declare import CLIENTS
from quafka.completion import SHELLS
from tests.support.needs import program

_SHELL = """source "$1"; shift
for line; do
    IFS=" " read -ra COMP_WORDS <<< "quafka $line"
    [[ $line == *" " ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
    _shtab_quafka
    echo "${COMPREPLY[@]}"
done"""


def printed(capsys: pytest.CaptureFixture[str], command: str) -> str:
    assert main(command.split()) == 0
    shown = capsys.readouterr()
    assert not shown.err
    return shown.out


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("completion") / "quafka.bash"
    with redirect_stdout(io.StringIO()) as out:
        assert main(["completion", "bash"]) == 0
    file.write_text(out.getvalue())
    return file


def completed(script: Path, *lines: str, path: Path | None = None) -> list[str]:
    """What bash offers for the last word of each line."""
    ran = subprocess.run(
        ["bash", "-c", _SHELL, "bash", str(script), *lines],
        capture_output=True, text=True, check=True, cwd=path,
        env=os.environ if path is None else {**os.environ, "PATH": f"{path}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert not ran.stderr
    return ran.stdout.splitlines()


def test_bash_completes_commands_flags_and_choices(script: Path) -> None:
    expected = {
        "topics cr": "create",
        "cons": "console consume",
        "produce -z zs": "zstd",
        "broker --wal-fs": "--wal-fsync",
        "completion ": "bash zsh fish",
        "topics list --format ": "text json",
    }
    assert completed(script, *expected) == list(expected.values())


def test_names_of_topics_are_asked_of_the_cluster_only_when_they_are_completed(
    script: Path, tmp_path: Path
) -> None:
    """Not when a shell reads the script."""
    command = tmp_path / "quafka"
    command.write_text('#!/bin/sh\necho "$@" >> asked\necho orders\necho payments\n')
    command.chmod(0o755)
    assert completed(script, "consume -t or", path=tmp_path) == ["orders"]
    assert (tmp_path / "asked").read_text() == "completion --names topics\n"


def test_without_a_cluster_no_names_are_offered(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUAFKA_BROKERS", "not an address:at all")
    assert printed(capsys, "completion --names groups") == ""


@pytest.mark.long
@pytest.mark.needs("zsh", "fish")
@pytest.mark.parametrize("shell", [shell for shell in SHELLS if shell != "bash"])
def test_the_other_shells_read_their_scripts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, shell: str
) -> None:
    file = tmp_path / f"_quafka.{shell}"
    file.write_text(printed(capsys, f"completion {shell}"))
    subprocess.run([program(shell), "-n", str(file)], check=True)
    if shell == "fish":
        asked = f"source {file}; complete -C 'quafka topics cr'"
        ran = subprocess.run(
            [program(shell), "-c", asked], capture_output=True, text=True, check=True
        )
        assert ran.stdout == "create\tcreate topics\n"


def test_a_shell_that_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    for line, sentence in (
        ("completion zhs", "'zhs' is none of bash, zsh, fish"),
        ("completion", "SHELL is required"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(line.split())
        assert ended.value.code == 2
        assert sentence in capsys.readouterr().err


# --- help and the manual page ---------------------------------------------------------------------


def test_help_is_that_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["topics", "create", "--help"])
    its_own = capsys.readouterr().out
    assert printed(capsys, "help topics create") == its_own
    assert main(["help", "topics", "crate"]) == 2
    assert "'crate' is none of list, describe, create" in capsys.readouterr().err
    assert main(["help", "doctor", "x"]) == 2
    assert capsys.readouterr().err == "quafka help: 'x' is too much\n"


def test_the_manual_page_has_every_client_command_and_flag(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = printed(capsys, "help --man")
    assert page.startswith(".TH QUAFKA 1 ")
    for name in CLIENTS:
        assert f'.SS "quafka {name}' in page
    assert r"\fB\-c, \-\-config NAME=VALUE\fR" in page
    assert "--" not in page, "hyphens can be copied from it"
    settings = printed(capsys, "help broker --man")
    assert r"\fB\-\-wal\-fsync VALUE\fR" in settings
    assert r"\-\-wal\-fsync VALUE" not in page, "programs' settings have pages of their own"


@pytest.mark.long
@pytest.mark.needs("mandoc")
def test_the_manual_page_is_well_formed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for command in ("help --man", "help up --man"):
        file = tmp_path / "quafka.1"
        file.write_text(printed(capsys, command))
        ran = subprocess.run(
            [program("mandoc"), "-T", "lint", "-W", "warning", str(file)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        (no_date,) = ran.stdout.splitlines()  # which would differ from build to build
        assert "missing date" in no_date
