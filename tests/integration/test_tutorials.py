"""Every command of the tutorials works, in the order of the page."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.apache_kafka import ApacheKafka, apache_kafka
from tests.support.flights import COUNT, flights
from tests.support.java import jar, java_class, kafka_tools
from tests.support.s3 import open_s3_server
from tests.support.tutorial import Tutorial

pytestmark = pytest.mark.long

MIRROR_MAKER = "4.3.0"
"""MirrorMaker is not published for 4.4."""
TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"


def nothing() -> None:
    """For what the tests have already, such as installed packages."""


INSTALLED = {".venv/bin/pip install": nothing}


def test_a_first_topic(tmp_path: Path) -> None:
    shown = Tutorial(TUTORIALS / "first-topic.md", tmp_path).run()
    read = re.findall(r"^(\d) \d alice (\w+)$", shown, re.MULTILINE)
    assert [what for _, what in read] == ["book", "pen"]
    assert len({partition for partition, _ in read}) == 1
    assert {row[0] for row in re.findall(r"^(\d) \d \w+ \w+$", shown, re.MULTILINE)} == set("012")
    assert "partitions of these topics without a committed offset, and so without lag:" in shown
    assert shown.count("book\n") == 3
    assert "\nfail" not in shown


def test_the_quick_start(tmp_path: Path) -> None:
    shown = Tutorial(TUTORIALS.parent / "quick-start.md", tmp_path).run()
    assert sorted(re.findall(r"^\d \d (k\d) (\w+)$", shown, re.MULTILINE)) == [
        ("k1", "first"), ("k2", "second"), ("k3", "third"),
    ]  # fmt: skip
    assert "\nfail" not in shown


@pytest.mark.needs("kcat")
def test_flights(tmp_path: Path) -> None:
    def write() -> None:
        lines = [flight.key + b":" + flight.value + b"\n" for flight in flights()]
        (tmp_path / "flights.txt").write_bytes(b"".join(lines))

    shown = Tutorial(TUTORIALS / "flights.md", tmp_path, {"make flights.txt": write}).run()
    assert f"\n{COUNT}\n" in f"\n{shown}"
    assert re.search(r"^1000 \w\w source=nycflights13 {", shown, re.MULTILINE)
    assert [line.split()[0] for line in shown.splitlines() if "b'{" in line] == ["0", "1", "2"]


def test_tenants(tmp_path: Path) -> None:
    shown = Tutorial(TUTORIALS / "tenants.md", tmp_path).run()
    assert shown.count("only for acme\n") == 1
    assert "suspended globex" in shown
    assert "resumed globex" in shown


def test_a_log_in_a_bucket(tmp_path: Path) -> None:
    with open_s3_server() as endpoint:
        known = {**INSTALLED, "moto_server": nothing}
        shown = {"http://127.0.0.1:9000": endpoint}
        output = Tutorial(TUTORIALS / "bucket.md", tmp_path, known, shown).run()
    assert output.count("\n1000\n") == 2
    assert "<Key>quafka/log/" in output


@pytest.mark.needs("java")
def test_spark(tmp_path: Path) -> None:
    shown = Tutorial(TUTORIALS / "spark.md", tmp_path, INSTALLED).run()
    assert shown.count("alice 17\nbob 30\n") == 2
    assert shown.count("carol 8\n") == 1


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[ApacheKafka]:
    """A running Apache Kafka."""
    with apache_kafka(tmp_path / "kafka") as running:
        yield running


def mirror_jars() -> list[Path]:
    """The jars of MirrorMaker, in the newest version that is published for it."""
    names = ("connect-mirror", "connect-mirror-client")
    return [
        *kafka_tools(MIRROR_MAKER),
        *(jar("org.apache.kafka", name, MIRROR_MAKER) for name in names),
    ]


@pytest.mark.needs("java", "mvn", fetch=mirror_jars)
def test_from_kafka_and_back(kafka: ApacheKafka, tmp_path: Path) -> None:
    folder = tmp_path / "reader"
    folder.mkdir()
    shown = {"/tmp/kraft-combined-logs": str(kafka.log_dirs[0]), "localhost:9292": kafka.bootstrap}
    page = TUTORIALS / "from-kafka.md"
    tutorial = Tutorial(page, folder, {"kafka-server-stop.sh": kafka.stop}, shown)
    command = java_class("org.apache.kafka.connect.mirror.MirrorMaker", mirror_jars())
    tutorial.add_program("connect-mirror-maker.sh", shlex.join(command))
    lines = tutorial.run().splitlines()
    printed = [line for line in lines if line in {"3", "7", "40", "41", "100", "101"}]
    assert printed == ["40", "100", "101", "3", "101", "7", "41"]
