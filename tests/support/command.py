"""The `quafka` command as a person runs it: in this process, or in one that gets signals."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from quafka.cli import main


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of it."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def rows(self) -> list[list[str]]:
        """The words of each line of a table, its headings left out."""
        return [line.split() for line in self.out.splitlines()[1:]]


class Command:
    """Runs commands against one server. What they print is not a terminal's."""

    def __init__(self, brokers: str, timeout: float = 10.0, config: Path | None = None) -> None:
        self._flags = ["--brokers", brokers, "--timeout", str(timeout)]
        if config is not None:
            self._flags += ["--command-config", str(config)]

    def __call__(self, command: str, *more: str, stdin: bytes = b"", code: int | None = 0) -> Ran:
        """Run it; it must end with this exit code (None: any), and with nothing on stderr if
        that is 0."""
        out, err = _Binary(), io.StringIO()
        with (
            redirect_stdout(out),
            redirect_stderr(err),
            patch("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin))),
        ):
            ended = main([*command.split(), *more, *self._flags])
            out.flush()
        ran = Ran(ended, out.text, err.getvalue())
        if code is not None:
            assert ran.code == code, ran
            assert bool(ran.err) == bool(code), ran
        assert "Traceback" not in ran.err
        return ran

    def start(self, command: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        """Run it in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "quafka", *command.split(), *self._flags],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


class _Binary(io.TextIOWrapper):
    def __init__(self) -> None:
        self._bytes = io.BytesIO()
        super().__init__(self._bytes, "utf-8", write_through=True)

    @property
    def text(self) -> str:
        return self._bytes.getvalue().decode("utf-8", "backslashreplace")
