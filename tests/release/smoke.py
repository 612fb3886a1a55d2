"""Uses an installed Quafka as a new user does: version, `quafka up`, produce, consume, Ctrl-C."""

from __future__ import annotations

import re
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.release.build import ReleaseError

_LINES = "first\nsecond\n"
_SECONDS = 120.0
"""What a command may take: uvx installs the wheel first."""
_ADDRESS = re.compile(r"Kafka clients +(127\.0\.0\.1:\d+)")
_IMPORTS = """
import importlib, pkgutil, sys
from importlib.metadata import distribution
names = sorted({str(file).partition("/")[0] for file in distribution("quafka").files
                if str(file).endswith("/__init__.py")})
modules = list(names)
if sys.argv[1] == "all":
    for name in names:
        package = importlib.import_module(name)
        modules += [each.name for each in pkgutil.walk_packages(package.__path__, f"{name}.")
                    if not each.name.endswith("__main__")]
for name in modules:
    importlib.import_module(name)
print(len(modules))
"""


def imports(python: Path, modules: str, env: Mapping[str, str]) -> int:
    """Import the wheel's packages, or `all` modules of them; how many there are."""
    return int(_output([str(python), "-c", _IMPORTS, modules], env))


def use(command: list[str], version: str, env: Mapping[str, str]) -> None:
    """Run a broker and a gateway by this command, write records and read them.

    Raises:
        ReleaseError: a step fails.
    """
    shown = _output([*command, "--version"], env).split()
    if version not in shown:
        raise ReleaseError(f"{command} is version {shown}, not {version}")
    with tempfile.TemporaryDirectory(prefix="quafka-dist-") as folder:
        free = "127.0.0.1:0"
        up = subprocess.Popen(
            [*command, "up", "--listen", free, "--gateway-ops-listen", free,
             "--broker-ops-listen", free, "--console-listen", free],
            cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        try:
            at = _address(up)
            _output([*command, "produce", "-t", "smoke", "--brokers", at], env, _LINES)
            read = _output([*command, "consume", "-t", "smoke", "-e", "--brokers", at], env)
            if read != _LINES:
                raise ReleaseError(f"{_LINES!r} was written, and {read!r} read")
            up.send_signal(signal.SIGINT)
            code = up.wait(_SECONDS)
            if code:
                raise ReleaseError(f"`quafka up` ends with {code} after Ctrl-C")
        finally:
            up.kill()
            up.communicate()


def _address(up: subprocess.Popen[str]) -> str:
    """Where Kafka clients connect, once all programs are ready."""
    assert up.stdout is not None
    printed = ""
    for line in up.stdout:
        printed += line
        found = _ADDRESS.search(printed)
        if found is not None and "Ctrl-C" in line:
            return found.group(1)
    raise ReleaseError(f"`quafka up` does not start: {printed}")


def _output(command: list[str], env: Mapping[str, str], stdin: str = "") -> str:
    done = subprocess.run(
        command, input=stdin, env=env, capture_output=True, text=True, check=False,
        timeout=_SECONDS,
    )  # fmt: skip
    if done.returncode:
        raise ReleaseError(f"{' '.join(command)}: {done.stderr or done.stdout}")
    return done.stdout
