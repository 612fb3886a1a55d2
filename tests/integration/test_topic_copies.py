"""`quafka topics copy` and `quafka mirror` against real processes."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest

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


@contextmanager
def mirrored(
    source: Cluster, target: Cluster, more: str = ""
) -> Generator[subprocess.Popen[bytes]]:
    process = Command(source.bootstrap).start(
        f"mirror --to {target.bootstrap} --exclude *-not -g m-* --format json "
        "--commit-interval 0.1 --refresh-interval 0.5 --groups-interval 0.5 "
        f"--status-interval 0.2 {more}"
    )
    try:
        yield process
    finally:
        process.kill()
        out, err = process.communicate()
        print(out.decode()[-2_000:], err.decode()[-2_000:])


def statuses(process: subprocess.Popen[bytes]) -> Callable[[], dict[str, Any]]:
    def following() -> dict[str, Any]:
        assert process.stdout is not None
        found: dict[str, Any] = json.loads(process.stdout.readline())
        return found

    return following


def until_status(
    process: subprocess.Popen[bytes], enough: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    following = statuses(process)
    give_up = time.monotonic() + SECONDS
    while not enough(found := following()):
        assert time.monotonic() < give_up, found
    return found


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
        with mirrored(source, target, "-t shop-*") as process:
            write(here, "shop-1", range(written, written + 20_000))
            written += 20_000
            until_status(process, lambda status: status["records"] > 0)
            process.send_signal(signal.SIGKILL)
    with mirrored(source, target, "-t shop-*") as process:
        until_status(process, lambda s: s["state"] == "running" and s["lag"] == 0)
        target.restart()
        here("topics create shop-2")
        here("topics add-partitions shop-1 -n 1")
        here("produce -t shop-1 -p 2", stdin=b"new\n")
        write(here, "shop-2", range(100))
        here("groups reset-offsets m-1 -t shop-1 --to 40")
        until_status(
            process,
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
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
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
        until_status(first, lambda status: status["state"] == "running")
        with mirrored(source, target, "-t fenced --name twice") as second:
            until_status(second, lambda status: status["state"] == "running")
            write(Command(source.bootstrap), "fenced", range(10))
            assert first.wait(SECONDS) == 1
            assert first.stderr is not None
            assert b"another process runs the same job" in first.stderr.read()
            until_status(second, lambda status: status["records"] >= 10)
