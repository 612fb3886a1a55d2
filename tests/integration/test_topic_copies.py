"""`quafka topics copy` and `quafka mirror` against real processes."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.support.cluster import Cluster
from tests.support.command import Command
from tests.support.copied_topics import SECONDS, check_copies, read
from tests.support.group_members import GROUPS

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[Cluster, Cluster]]:
    with (
        Cluster(tmp_path_factory.mktemp("source"), broker_args=GROUPS) as source,
        Cluster(tmp_path_factory.mktemp("target"), broker_args=GROUPS) as target,
    ):
        yield source, target


def eventually(condition: Callable[[], object]) -> None:
    give_up = time.monotonic() + 3 * SECONDS
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.1)


def end_offset(cluster: Cluster, topic: str) -> int:
    """Where partition 0 ends, records of open transactions included; 0: there is none."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "isolation.level": "read_uncommitted",
        }
    )
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), SECONDS)
    except KafkaException:
        return 0
    finally:
        consumer.close()
    return end


def test_a_copy_in_another_cluster(clusters: tuple[Cluster, Cluster]) -> None:
    source, target = clusters
    check_copies(source.bootstrap, target.bootstrap, "orders")


def test_a_copy_here_and_what_is_refused(clusters: tuple[Cluster, Cluster]) -> None:
    quafka = Command(clusters[0].bootstrap)
    quafka("topics create here -p 3")
    quafka("produce -t here -p 0", stdin=b"1\n2\n3\n")
    assert quafka("topics copy here there").out.startswith("copied 3 records (3 B) from here to")
    state = "quafka-copy.there"
    listed = {each["group"]: each for each in quafka("groups list --format json").json["groups"]}
    assert (listed[state]["lag"], listed[state]["behind_seconds"]) == (None, None)
    (described,) = quafka(f"groups describe {state} --format json").json["groups"]
    found = [(each["committed_offset"], each["lag"]) for each in described["partitions"]]
    assert (3, None) in found
    assert "so there is no lag here" in quafka(f"groups describe {state}").out
    assert state not in quafka("doctor --groups", code=None).out
    refused = quafka("topics copy there here", code=1).err
    assert "has records that this job did not write" in refused
    assert refused.count("\n") == 1
    assert quafka("topics copy there here --append --format json").json["records"] == 3
    quafka("topics create another")
    refused = quafka("topics copy another there", code=1).err
    assert "state of a copy of another topic" in refused
    assert "name the copy" in quafka("topics copy here", code=2).err
    # Another spelling of the same address.
    elsewhere = clusters[0].bootstrap.replace("127.0.0.1", "localhost")
    assert elsewhere != clusters[0].bootstrap
    refused = quafka(f"topics copy another --to {elsewhere} --append", code=1).err
    assert "are the same cluster, so 'another' is its own copy" in refused
    quafka("topics delete here")
    quafka("topics create here -p 3")
    again = quafka("topics copy here there", code=1).err
    assert "was created anew" in again


# --- mirror -------------------------------------------------------------------------------------


class Mirroring:
    """A mirror in a process of its own. Its statuses are read as they come, so it never waits."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._messages = ""
        self._lines: SimpleQueue[bytes] = SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def until(self, enough: Callable[[dict[str, Any]], bool]) -> None:
        give_up = time.monotonic() + 3 * SECONDS
        found: dict[str, Any] = {}
        while not (found and enough(found)):
            assert time.monotonic() < give_up, found
            line = self._lines.get(timeout=3 * SECONDS)
            assert line, f"the mirror ended after {found}"
            found = json.loads(line)

    def end(self) -> str:
        """Kill it, if it still runs. Returns its messages."""
        self.process.kill()
        self._reader.join()
        stderr = self.process.stderr
        assert stderr is not None
        if not stderr.closed:
            with self.process:
                self._messages = stderr.read().decode()
        return self._messages


@contextmanager
def mirrored(source: Cluster, target: Cluster, more: str = "") -> Generator[Mirroring]:
    mirroring = Mirroring(
        Command(source.bootstrap).start(
            f"mirror --to {target.bootstrap} --exclude *-not -g m-* --format json "
            "--commit-interval 0.1 --refresh-interval 0.5 --groups-interval 0.5 "
            f"--status-interval 0.2 {more}"
        )
    )
    try:
        yield mirroring
    finally:
        print(mirroring.end())


def write(quafka: Command, topic: str, numbers: range) -> None:
    quafka(f"produce -t {topic} -K :", stdin=b"".join(b"%d:%d\n" % (n % 7, n) for n in numbers))


def test_a_mirror_that_is_killed_loses_and_repeats_nothing(
    clusters: tuple[Cluster, Cluster],
) -> None:
    source, target = clusters
    here, there = Command(source.bootstrap), Command(target.bootstrap)
    for name in ("shop-1", "shop-not"):
        here(f"topics create {name} -p 2")
    written = 0
    for _ in range(2):
        with mirrored(source, target, "-t shop-*") as mirror:
            write(here, "shop-1", range(written, written + 20_000))
            written += 20_000
            mirror.until(lambda status: status["records"] > 0)
            mirror.process.send_signal(signal.SIGKILL)
    with mirrored(source, target, "-t shop-*") as mirror:
        mirror.until(lambda s: s["state"] == "running" and s["lag"] == 0)
        target.restart()
        here("topics create shop-2")
        here("topics add-partitions shop-1 -n 1")
        here("produce -t shop-1 -p 2", stdin=b"new\n")
        write(here, "shop-2", range(100))
        here("groups reset-offsets m-1 -t shop-1 --to 40")
        mirror.until(
            lambda s: (
                (s["topics"], s["partitions"], s["groups"], s["lag"]) == (2, 4, 1, 0)
                and not s["problems"]
            ),
        )
        for topic, partitions in (("shop-1", range(3)), ("shop-2", range(1))):
            places = dict.fromkeys(partitions, 0)
            expected = read(source.bootstrap, topic, places)
            eventually(lambda: read(target.bootstrap, topic, places) == expected)  # noqa: B023
        source.gateway.kill()
        source.start_gateway()
        mirror.process.send_signal(signal.SIGTERM)
        assert mirror.process.wait(3 * SECONDS) == 0
    names = {row[0] for row in there("topics list").rows if row[0].startswith("shop-")}
    assert names == {"shop-1", "shop-2"}
    (group,) = there("groups export m-1 --format json").json["groups"]
    places = {each["partition"]: each["offset"] for each in group["partitions"]}
    expected = read(source.bootstrap, "shop-1", {0: 40, 1: 40})
    got = read(target.bootstrap, "shop-1", {0: places[0], 1: places[1]})
    assert set(expected) <= set(got), "a translated offset skips nothing"


def test_two_mirrors_of_one_name(clusters: tuple[Cluster, Cluster]) -> None:
    source, target = clusters
    Command(source.bootstrap)("topics create fenced")
    with mirrored(source, target, "-t fenced --name twice") as first:
        first.until(lambda status: status["state"] == "running")
        with mirrored(source, target, "-t fenced --name twice") as second:
            second.until(lambda status: status["state"] == "running")
            write(Command(source.bootstrap), "fenced", range(10))
            assert first.process.wait(3 * SECONDS) == 1
            assert "another process runs the same job" in first.end()
            second.until(lambda status: status["records"] >= 10)


def test_a_mirror_that_is_killed_in_its_first_transaction(
    clusters: tuple[Cluster, Cluster],
) -> None:
    source, target = clusters
    here = Command(source.bootstrap)
    here("topics create first")
    write(here, "first", range(100))
    first = Command(source.bootstrap).start(
        f"mirror --to {target.bootstrap} -t first --name first --commit-interval 3600"
    )
    try:
        eventually(lambda: end_offset(target, "first") > 0)
    finally:
        first.kill()
        first.communicate()
    assert read(target.bootstrap, "first", {0: 0}) == [], "nothing is committed"
    with mirrored(source, target, "-t first --name first") as mirror:
        mirror.until(lambda s: s["records"] == 100)
        write(here, "first", range(100, 110))
        mirror.until(lambda s: s["records"] == 110)
    expected = read(source.bootstrap, "first", {0: 0})
    assert len(expected) == 110
    assert read(target.bootstrap, "first", {0: 0}) == expected


def test_a_topic_that_is_refused_does_not_stop_the_others(
    clusters: tuple[Cluster, Cluster],
) -> None:
    source, target = clusters
    here, there = Command(source.bootstrap), Command(target.bootstrap)
    here("topics create r-large -c max.message.bytes=3MB")
    here("topics create r-small")
    there("topics create r-large")
    here("produce -t r-large", stdin=b"x" * 2_000_000 + b"\n")
    here("produce -t r-small", stdin=b"1\n2\n")
    with mirrored(source, target, "-t r-* --name refused") as mirror:
        mirror.until(
            lambda s: (
                (s["records"], s["state"]) == (2, "running")
                and any("'r-large'" in why and "too large" in why for why in s["problems"])
            )
        )
        here("produce -t r-small", stdin=b"3\n")
        mirror.until(lambda s: s["records"] == 3)
    assert there("consume -t r-small -e").out == "1\n2\n3\n"
