"""Java programs for tests. Where there is no Java or Maven Central, such a test is skipped."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.alone import alone

_JARS = Path(sys.prefix) / "jars"
QUICK_START = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]
"""Tests are over before the second compiler has paid for itself."""


def jar(group: str, artifact: str, version: str) -> Path:
    """A jar from Maven Central, fetched once into the virtual environment."""
    path = _JARS / f"{artifact}-{version}.jar"
    with alone(path):
        if not path.is_file():
            command = [_program("mvn"), "-q", "-B", "dependency:copy", f"-DoutputDirectory={_JARS}"]
            command += [f"-Dartifact={group}:{artifact}:{version}"]
            try:
                subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
            except subprocess.SubprocessError as e:
                pytest.skip(f"Maven cannot get {artifact} {version}: {e}")
    return path


def kafka_tools(pom: Path) -> list[Path]:
    """The jars of Kafka's command line tools, fetched once into the virtual environment."""
    folder = _JARS / f"tools-{hashlib.sha256(pom.read_bytes()).hexdigest()[:8]}"
    with alone(folder):
        if not folder.is_dir():
            part = folder.with_suffix(".part")
            command = [_program("mvn"), "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
            command += [f"-DoutputDirectory={part}"]
            try:
                subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
            except subprocess.SubprocessError as e:
                pytest.skip(f"Maven cannot get Kafka's tools: {e}")
            part.rename(folder)
    return sorted(folder.glob("*.jar"))


def java_command(source: Path, jars: list[Path]) -> list[str]:
    """What runs a program of one source file."""
    return java_class(str(source), jars)


def java_class(name: str, jars: list[Path]) -> list[str]:
    """What runs a class of these jars."""
    return [_program("java"), *QUICK_START, "-cp", ":".join(map(str, jars)), name]


def run_java(source: Path, jars: list[Path], text: str, *arguments: str) -> str:
    """What a program of one source file prints when it is given this text."""
    command = [*java_command(source, jars), *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path
