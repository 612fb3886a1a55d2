"""Figures of snapshots: `python -m tests.bench snapshot [--gigabytes 1 10]`.

How long it takes to make one of a log of so many gigabytes beside its running broker, and what
producers notice: they send at a steady rate while a snapshot is made each second, and while none
is, in turns. Ratios and copies are of one run.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from confluent_kafka import Message, Producer

from quafka_broker.config.settings import BrokerConfig
from quafka_broker.snapshots.create import Created, Creation
from quafka_broker.snapshots.destination import Destination
from quafka_broker.snapshots.folder_destination import FolderDestination
from quafka_broker.snapshots.local_cut import local_cut
from quafka_broker.snapshots.zone_cache import ZONES
from quafka_broker.state import BrokerState
from quafka_broker.wal.disk import RealDisk
from quafka_broker.wal.fsync import FsyncPolicy
from quafka_broker.wal.log import Log
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.records import split_batches
from tests.support.cluster import Cluster

_ORGS = (1, 2)
_TOPICS, _PARTITIONS = 4, 4
_RATE = 1_000  # records a second


class _Copying(FolderDestination):
    """As on another file system."""

    def link(self, source: Path, path: str) -> bool:
        return False


async def fill(data: Path, size: int, batch_bytes: int) -> None:
    """A log of so many bytes: two orgs, the batches of 32 partitions side by side."""
    (data / "wal").mkdir(parents=True)
    log = Log(RealDisk(data / "wal"), FsyncPolicy(0.0), 1 << 30)
    state = BrokerState(BrokerConfig(data=data), log)
    log.open(state.producers)
    log.start()
    await state.replay_registry()
    partitions = [
        log.partitions.get(
            (await state.topics.create(org, f"t{number}", _PARTITIONS))[0].partition_id(partition)
        )
        for org in _ORGS
        for number in range(_TOPICS)
        for partition in range(_PARTITIONS)
    ]
    batch = split_batches(build_batch([Record(0, 1_000, None, os.urandom(batch_bytes), [])]))
    rounds = size // (batch_bytes * len(partitions))
    for _ in range(rounds):
        await asyncio.gather(*[log.queue.append(partition, batch) for partition in partitions])
    await log.close()
    os.sync()  # so that nobody's fsync has to wait for all of it


def make(data: Path, store: Destination, org: int | None = None) -> tuple[Created, float, float]:
    """Make a snapshot; it, and how long it took, on the clock and of this process's time."""
    begun, used = time.perf_counter(), time.process_time()
    with store.locked() as lock, local_cut(data) as (cut, source):
        made = Creation(store, source, cut, org=org).run(lock)
    return made, time.perf_counter() - begun, time.process_time() - used


def print_made(name: str, made: Created, seconds: float, cpu: float) -> None:
    size = sum(piece.length for piece in made.manifest.pieces)
    print(
        f"  {name:36} {seconds * 1000:9.1f} {cpu * 1000:9.1f} {made.written / 1e6:11.1f} "
        f"{size / 1e9:8.2f}"
    )


def wait_for_zones(data: Path) -> None:
    """Until the broker has made those of all sealed segments."""
    sealed = len(list((data / "wal").glob("*.log"))) - 1
    while not (data / ZONES).is_dir() or len(list((data / ZONES).glob("*.zones"))) < sealed:
        time.sleep(0.1)


def create(cluster: Cluster, folder: Path, gigabytes: float) -> None:
    """The table of what it takes to make one."""
    data = cluster.data
    print(f"\nsnapshots of {gigabytes} GB, beside the broker (copies end in the page cache)")
    print(f"  {'':36} {'ms':>9} {'CPU ms':>9} {'MB written':>11} {'GB log':>8}")
    linked = FolderDestination(folder / "linked")
    wait_for_zones(data)
    print_made("linked, the first", *make(data, linked))
    print_made("linked, nothing new", *make(data, linked))
    produce(cluster.bootstrap, 1.0)
    print_made(f"linked, {_RATE} new records", *make(data, linked))
    shutil.rmtree(data / ZONES)
    print_made(
        "linked, the first, zones to be made", *make(data, FolderDestination(folder / "no-zones"))
    )
    begun = time.perf_counter()
    command = [sys.executable, "-m", "quafka", "snapshot", "create", str(folder / "command")]
    subprocess.run([*command, "--data", str(data)], check=True, capture_output=True)
    print(f"  {'the first, as a command':36} {(time.perf_counter() - begun) * 1000:9.1f}")
    if gigabytes <= 2:
        for name, org in (("copied", None), ("one org of two, repacked", _ORGS[0])):
            store = _Copying(folder / name.split(",")[0])
            made, seconds, cpu = make(data, store, org)
            print_made(name, made, seconds, cpu)
            rate = made.written / 1e6
            print(f"  {'':36} {rate / seconds:.0f} MB/s, {rate / cpu:.0f} a second of CPU")


# --- producers --------------------------------------------------------------------------------


def produce(bootstrap: str, seconds: float) -> list[float]:
    """Send at a steady rate; milliseconds from each record to its acknowledgement."""
    took: list[float] = []

    def acked(begun: float, error: object, _message: Message) -> None:
        assert error is None, error
        took.append((time.perf_counter() - begun) * 1000)

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    producer.produce("live", b"first")
    producer.flush(10)
    due = time.perf_counter()
    for _ in range(int(seconds * _RATE)):
        due += 1 / _RATE
        while (left := due - time.perf_counter()) > 0:
            producer.poll(left)
        producer.produce("live", b"x" * 100, on_delivery=partial(acked, due))
    producer.flush(10)
    return took


@contextmanager
def snapshots_all_the_time(data: Path, store: Destination, pause: float) -> Generator[list[float]]:
    """Make one after the other, in a process of its own; seconds that each took."""
    took: list[float] = []
    stop = threading.Event()
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from quafka_broker.snapshots.folder_destination import FolderDestination\n"
        "from tests.bench.snapshot import make\n"
        "os.nice(10)  # as the command does\n"
        "for _ in sys.stdin:\n"
        "    store = FolderDestination(Path(sys.argv[1]))\n"
        f"    print(make(Path({str(data)!r}), store)[1], flush=True)\n"
    )
    assert isinstance(store, FolderDestination)
    with subprocess.Popen(
        [sys.executable, "-c", script, str(store.root)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        assert child.stdin is not None
        assert child.stdout is not None
        to, answers = child.stdin, child.stdout

        def one() -> None:
            to.write("\n")
            to.flush()
            took.append(float(answers.readline()))

        def run() -> None:
            while not stop.wait(pause):
                one()

        one()  # the imports, and the first one
        thread = threading.Thread(target=run)
        thread.start()
        yield took
        stop.set()
        thread.join()
        child.stdin.close()


def latency(cluster: Cluster, folder: Path, rounds: int, seconds: float, pause: float) -> None:
    """What producers notice, in turns with and without snapshots."""
    quiet: list[float] = []
    busy: list[float] = []
    snapshots: list[float] = []
    for number in range(rounds):
        quiet += produce(cluster.bootstrap, seconds)
        store = FolderDestination(folder / f"live-{number}")
        with snapshots_all_the_time(cluster.data, store, pause) as took:
            busy += produce(cluster.bootstrap, seconds)
        snapshots += took[1:]
        shutil.rmtree(store.root)
    print(f"\nproduce at {_RATE} records a second, acks=all, wal.fsync=commit: ms")
    print(f"  {'':36} {'p50':>9} {'p99':>9} {'p99.9':>9} {'max':>9}")
    for name, took in (("no snapshots", quiet), (f"a snapshot every {pause:g} s", busy)):
        cuts = statistics.quantiles(took, n=1000)
        print(f"  {name:36} {cuts[499]:9.2f} {cuts[989]:9.2f} {cuts[998]:9.2f} {max(took):9.2f}")
    print(f"  {len(snapshots)} snapshots; median {statistics.median(snapshots) * 1000:.1f} ms")


async def stall(partitions: int) -> float:
    """Milliseconds for which a cut holds up the event loop of a broker with many partitions."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        (data / "wal").mkdir()
        log = Log(RealDisk(data / "wal"), FsyncPolicy(0.0), 1 << 30)
        state = BrokerState(BrokerConfig(data=data), log)
        log.open(state.producers)
        log.start()
        await state.replay_registry()
        batch = split_batches(build_batch([Record(0, 1_000, None, b"x", [])]))
        for number in range(max(1, partitions // 100)):
            topic, _ = await state.topics.create(1, f"t{number}", min(100, partitions))
            ids = [topic.partition_id(number) for number in range(topic.partitions)]
            await asyncio.gather(
                *[log.queue.append(log.partitions.get(each), batch) for each in ids]
            )
        took: list[float] = []
        for _ in range(20):
            begun = time.perf_counter()
            await log.cut(time.perf_counter, lambda _cut, ended: took.append(ended - begun))  # noqa: B023
        await log.close()
        return statistics.median(took) * 1000


def main(arguments: Sequence[str]) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench snapshot")
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[1, 10])
    parser.add_argument("--batch", type=int, default=64 << 10, help="bytes of a record batch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--pause", type=float, default=1.0, help="seconds between two snapshots")
    parser.add_argument("--folder", type=Path, help="where there is room; default: the usual one")
    options = parser.parse_args(arguments)
    for count in (32, 10_000):
        print(f"a cut holds up appends, {count:6} partitions: {asyncio.run(stall(count)):.2f} ms")
    for gigabytes in options.gigabytes:
        with tempfile.TemporaryDirectory(dir=options.folder) as name:
            folder = Path(name)
            asyncio.run(fill(folder / "data", int(gigabytes * 1e9), options.batch))
            with Cluster(folder, broker_args=("--wal-rewrite", "false")) as cluster:
                create(cluster, folder, gigabytes)
                latency(cluster, folder, options.rounds, options.seconds, options.pause)
