"""Where `quafka users` takes a password from: a file, a line of stdin, or a terminal."""

from __future__ import annotations

import io
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest

from quafka.cli import main
from quafka.commands import users
from quafka.commands.options import UsageError
from quafka.commands.security import is_readable_on_the_way
from quafka_client.security import NONE, ClientProtocol, ClientSecurity


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def asked(monkeypatch: pytest.MonkeyPatch, stdin: str, file: Path | None = None) -> str:
    monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
    return users.password(Namespace(password_file=file, user="alice"))


def test_a_line_of_stdin_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(monkeypatch, "pass word\nmore\n") == "pass word"
    assert asked(monkeypatch, "no end") == "no end"
    file = tmp_path / "password"
    file.write_text("ünïcode\n")
    assert asked(monkeypatch, "", file) == "ünïcode"
    for wrong in ("", "\n", "a\0b", "x" * 5_000):
        with pytest.raises(UsageError, match="one line of 1 to 4096"):
            asked(monkeypatch, wrong)
    file.write_text("two\nlines")
    with pytest.raises(UsageError, match="one line"):
        asked(monkeypatch, "", file)
    file.write_bytes(b"\xff")
    with pytest.raises(UsageError, match="not text"):
        asked(monkeypatch, "", file)
    with pytest.raises(UsageError, match="No such file"):
        asked(monkeypatch, "", tmp_path / "none")


def test_a_terminal_asks_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(*given: str) -> None:
        left: Iterator[str] = iter(given)
        monkeypatch.setattr("getpass.getpass", lambda _prompt: next(left))

    monkeypatch.setattr("sys.stdin", Terminal())
    options = Namespace(password_file=None, user="alice")
    answers("secret", "secret")
    assert users.password(options) == "secret"
    answers("secret", "other")
    with pytest.raises(UsageError, match="differ; nothing was changed"):
        users.password(options)


def test_no_broker_in_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "password"
    file.write_text("x")
    for folder in (tmp_path, tmp_path / "none"):
        words = ["users", "add", "a", "--broker-data", str(folder), "--password-file", str(file)]
        assert main(words) == 1
        assert "no broker runs in" in capsys.readouterr().err
    assert main(["users", "add", "a", "--org", "x"]) == 2


@pytest.mark.parametrize(
    ("security", "host", "readable"),
    [
        (NONE, "127.0.0.1", False),
        (NONE, "::1", False),
        (NONE, "192.0.2.1", True),
        (ClientSecurity(ClientProtocol.SASL_PLAINTEXT), "kafka.example.org", True),
        (ClientSecurity(ClientProtocol.SASL_SSL), "kafka.example.org", False),
    ],
)
def test_who_reads_what_is_sent(security: ClientSecurity, host: str, readable: bool) -> None:
    assert is_readable_on_the_way(security, host) == readable
