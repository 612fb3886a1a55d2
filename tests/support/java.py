"""Java programs for tests, which are marked `JAVA_TOOLS` or the like."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.alone import alone
from tests.support.needs import FETCH_SECONDS, CannotFetchError, program

_JARS = Path(sys.prefix) / "jars"
_POM = Path(__file__).parents[1] / "compat" / "java" / "pom.xml"
KAFKA = "4.4.0"
QUICK_START = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]
"""Tests are over before the second compiler has paid for itself."""


def jar(group: str, artifact: str, version: str) -> Path:
    """A jar from Maven Central, fetched once into the virtual environment.

    Raises:
        CannotFetchError: Maven Central cannot be reached.
    """
    path = _JARS / f"{artifact}-{version}.jar"
    with alone(path):
        if not path.is_file():
            command = [program("mvn"), "-q", "-B", "dependency:copy", f"-DoutputDirectory={_JARS}"]
            command += [f"-Dartifact={group}:{artifact}:{version}"]
            try:
                subprocess.run(
                    command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=True
                )
            except subprocess.SubprocessError as e:
                raise CannotFetchError(f"Maven cannot get {artifact} {version}: {e}") from e
    return path


def kafka_tools(version: str = KAFKA) -> list[Path]:
    """The jars of Kafka's command line tools, fetched once into the virtual environment.

    Raises:
        CannotFetchError: Maven Central cannot be reached.
    """
    project = _POM.read_text().replace(f"<version>{KAFKA}<", f"<version>{version}<")
    folder = _JARS / f"tools-{hashlib.sha256(project.encode()).hexdigest()[:8]}"
    with alone(folder):
        if not folder.is_dir():
            part = folder.with_suffix(".part")
            pom = folder.with_suffix(".xml")
            pom.write_text(project)
            command = [program("mvn"), "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
            command += [f"-DoutputDirectory={part}"]
            try:
                subprocess.run(
                    command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=True
                )
            except subprocess.SubprocessError as e:
                raise CannotFetchError(f"Maven cannot get Kafka's tools: {e}") from e
            part.rename(folder)
    return sorted(folder.glob("*.jar"))


def java_command(source: Path, jars: list[Path]) -> list[str]:
    """What runs a program of one source file: its class is named as the file is."""
    return java_class(source.stem, [_compiled(source, jars), *jars])


def _compiled(source: Path, jars: list[Path]) -> Path:
    """A folder with the program's classes, compiled once into the virtual environment."""
    content = source.read_bytes() + b"".join(jar.name.encode() for jar in jars)
    folder = Path(sys.prefix) / "java" / f"{source.stem}-{hashlib.sha256(content).hexdigest()[:8]}"
    compiler = Path(program("java")).resolve().with_name("javac")
    with alone(folder):
        if not folder.is_dir():
            part = folder.with_suffix(".part")
            command = [str(compiler), "-d", str(part), "-cp", ":".join(map(str, jars)), str(source)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            part.rename(folder)
    return folder


def java_class(name: str, jars: list[Path]) -> list[str]:
    """What runs a class of these jars."""
    return [program("java"), *QUICK_START, "-cp", ":".join(map(str, jars)), name]


def run_java(source: Path, jars: list[Path], text: str, *arguments: str) -> str:
    """What a program of one source file prints when it is given this text."""
    command = [*java_command(source, jars), *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def kafka_clients() -> list[Path]:
    """The jars of Kafka's clients alone."""
    return [
        jar("org.apache.kafka", "kafka-clients", KAFKA),
        jar("org.slf4j", "slf4j-api", "1.7.36"),
        jar("org.slf4j", "slf4j-simple", "1.7.36"),
    ]


def kafka_streams() -> list[Path]:
    """The jars of Kafka Streams, with those of the tools."""
    return [
        *kafka_tools(),
        jar("org.apache.kafka", "kafka-streams", KAFKA),
        jar("org.rocksdb", "rocksdbjni", "10.1.3"),
    ]


JAVA_TOOLS = pytest.mark.needs("java", "mvn", fetch=kafka_tools)
JAVA_STREAMS = pytest.mark.needs("java", "mvn", fetch=kafka_streams)
JAVA_CLIENTS = pytest.mark.needs("java", "mvn", fetch=kafka_clients)
"""Marks of tests."""
