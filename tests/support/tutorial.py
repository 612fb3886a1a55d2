"""Runs what a tutorial shows, in the order of the page, as a reader does who pastes it.

- A block with a title is a file.
- `quafka up` and `make up` are started, and stopped before the next one, as by Ctrl-C. They listen
  at free ports; `localhost:9092` and `$QUAFKA_BROKERS` then lead there.
- `export NAME=VALUE` holds for the rest of the page.
- All other lines of a block of shell commands are one script, which must succeed.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

_BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', re.MULTILINE | re.DOTALL)
_SECONDS = 300


class Tutorial:
    """One page, in a folder of its own.

    `instead`: what stands for lines that begin with a text, such as a server at a fixed port.
    """

    def __init__(
        self,
        page: Path,
        folder: Path,
        instead: Mapping[str, Callable[[], None]] | None = None,
        replaced: Mapping[str, str] | None = None,
    ) -> None:
        self.output = ""
        """What the commands have printed."""
        self.env = {**os.environ, "NO_COLOR": "1"}
        self._page = page
        self._folder = folder
        self._instead = instead or {}
        self._replaced = dict(replaced or {})
        self._up: subprocess.Popen[str] | None = None
        python = shlex.quote(sys.executable)
        self.add_program("quafka", f"{python} -m quafka")
        self.add_program("python", python)
        self.env["PATH"] = f"{folder / 'bin'}:{self.env['PATH']}"

    def run(self) -> str:
        """Run the whole page; return what it printed."""
        try:
            for language, title, text in _BLOCK.findall(self._page.read_text("utf-8")):
                if title:
                    file = self._folder / title
                    file.write_text(self._localised(text))
                    file.chmod(0o600)
                elif language == "sh":
                    self._block(text)
        finally:
            self._stop()
        return self.output

    def _block(self, text: str) -> None:
        script: list[str] = []
        for line in self._lines(text):
            known = next((each for each in self._instead if line.startswith(each)), None)
            if known is not None:
                self._instead[known]()
            elif line.startswith(("quafka up", "make up")):
                self._script(script)
                script = []
                self._start(line)
            elif line.startswith("export "):
                name, _, value = shlex.split(line, comments=True)[1].partition("=")
                if name != "PATH":  # a checkout's commands: they are there already
                    self.env[name] = self._localised(value)
            else:
                script.append(line)
        self._script(script)

    @staticmethod
    def _lines(text: str) -> Iterator[str]:
        """The lines; one that ends in a backslash goes on in the next."""
        for line in text.replace("\\\n", " ").splitlines():
            if line.strip() and not line.startswith("#"):
                yield line

    def _script(self, lines: list[str]) -> None:
        if not lines:
            return
        script = self._localised("\n".join(["set -eum -o pipefail", *lines]))
        done = subprocess.run(
            ["bash", "-c", script], cwd=self._folder, env=self.env, timeout=_SECONDS,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        self.output += done.stdout
        assert done.returncode == 0, f"{script}\n{done.stdout}"

    def _start(self, line: str) -> None:
        self._stop()
        words = shlex.split(self._localised(line), comments=True)[2:]
        words = [word.replace("127.0.0.1:9092", "127.0.0.1:0") for word in words]
        if "--listeners" not in words:
            words += ["--listen", "127.0.0.1:0"]
        free = [f"--{name}=127.0.0.1:0" for name in ("gateway-ops-listen", "broker-ops-listen")]
        self._up = subprocess.Popen(
            [str(self._folder / "bin" / "quafka"), "up", "--console=false", *free, *words],
            cwd=self._folder, env=self.env,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert self._up.stdout is not None
        printed = ""
        while "Ctrl-C" not in printed:
            read = self._up.stdout.readline()
            assert read, printed
            printed += read
        found = re.search(r"Kafka clients +(?:\w+://)?(127\.0\.0\.1:\d+)", printed)
        assert found, printed
        self._replaced["localhost:9092"] = self.env["QUAFKA_BROKERS"] = found[1]

    def _stop(self) -> None:
        if self._up is not None:
            self._up.send_signal(signal.SIGINT)
            self.output += self._up.communicate(timeout=60)[0]
            self._up = None

    def _localised(self, text: str) -> str:
        for shown, here in self._replaced.items():
            text = text.replace(shown, here)
        return text

    def add_program(self, name: str, command: str) -> None:
        """A program of the page, by the shell's command for it."""
        file = self._folder / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        file.chmod(0o755)
