"""Exactly once for hours: copy jobs of all clients, a word count of Kafka Streams, Connect.

Broker and gateway are killed, stopped and paused, the clients are killed; the results are exact.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.crash import kills, transactions
from tests.support.cluster import Cluster
from tests.support.connect import copy_lines
from tests.support.copy_job import COMMANDS, copy_for
from tests.support.group_members import GROUPS
from tests.support.needs import find
from tests.support.word_count import count_words

_NEEDS = {"java": ("java", "mvn"), "franz-go": ("go",)}
_COPY_SECONDS, _CHECKED_SECONDS = 150.0, 120.0
"""Each on a cluster of its own, so that a failure has a short history."""


def disturbances(cluster: Cluster) -> list[transactions.Disturbance]:
    """Each as often as the others."""
    return [
        partial(kills.kill_broker, cluster),
        partial(kills.kill_broker_twice, cluster),
        partial(kills.kill_gateway, cluster),
        partial(kills.kill_both, cluster),
        partial(kills.stop_broker, cluster),
        transactions.pause(lambda: cluster.broker),
        transactions.pause(lambda: cluster.gateway),
    ]


def copies(seconds: float, seed: int) -> bool:
    """Group-to-topic copies by all clients at a time, one and two members by turns."""
    kinds = [kind for kind in COMMANDS if all(map(find, _NEEDS.get(kind, ())))]
    print(f"  copies by {', '.join(kinds)}", flush=True)
    left, members = seconds, 1
    while left > 0:
        length = min(left, _COPY_SECONDS)
        left -= length
        one = partial(_copy, kinds, length, members, seed)
        if not _on_a_cluster(one, f"copies {seed}, {members} members"):
            return False
        seed, members = seed + 1, 3 - members
    return True


def _copy(
    kinds: list[str], seconds: float, members: int, seed: int, folder: Path, cluster: Cluster
) -> object:
    disturb = disturbances(cluster)
    to = (folder, cluster.address, kinds)
    return copy_for(*to, disturb, seconds, members=members, seed=seed)


def streams(seconds: float, seed: int) -> bool:
    """A word count by two processes of two threads each, in one go."""

    def turn(folder: Path, cluster: Cluster) -> object:
        return count_words(
            folder,
            cluster.address,
            disturbances(cluster),
            seconds,
            processes=2,
            seed=seed,
            said=partial(print, flush=True),
        )

    return _on_a_cluster(turn, f"word count {seed}")


def connect(seconds: float, seed: int) -> bool:
    """A source of Kafka Connect with exactly-once support, on two workers."""

    def turn(folder: Path, cluster: Cluster) -> object:
        return copy_lines(folder, cluster.address, disturbances(cluster), seconds, seed)

    return _on_a_cluster(turn, f"Connect {seed}")


def checked(seconds: float, seed: int) -> bool:
    """Transactions whose clients report to a checker (`tests.crash.transactions`)."""
    left = seconds
    while left > 0:
        length = min(left, _CHECKED_SECONDS)
        left -= length
        with tempfile.TemporaryDirectory() as scratch:
            figures = transactions.run_quafka(Path(scratch), length, seed)
        print(f"  seed {seed}\n{figures}", flush=True)
        if figures.problems:
            return False
        seed += 1
    return True


def _on_a_cluster(turn: Callable[[Path, Cluster], object], what: str) -> bool:
    """Run; whether it went well. The folder of a failure is kept."""
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    began = time.monotonic()
    try:
        with Cluster(folder, broker_args=GROUPS) as cluster:
            done = turn(folder, cluster)
    except AssertionError as e:
        print(f"  PROBLEM in {what}: {e} (see {folder})", file=sys.stderr)
        return False
    print(f"  {what}, {time.monotonic() - began:.0f} s: {done}", flush=True)
    shutil.rmtree(folder)
    return True
