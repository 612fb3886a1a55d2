"""`quafka import`: MB/s and CPU of a folder of Kafka's, with records of 1 KB in large batches.

The folder is made here, as a broker with ZooKeeper left it, so that neither Java nor Kafka is
needed. Both the folder and the log are on the disk of `--folder`; after each round the log is
removed.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from quafka_proto.record_codec import Record, build_batch
from quafka_proto.records import rebase

_NOW = 1_700_000_000_000
_SEGMENT_BYTES = 1 << 30


def main(arguments: Sequence[str]) -> None:
    """Make the folder, import it, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench imports", description=__doc__)
    parser.add_argument("--bytes", type=int, default=2 << 30)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--batch-records", type=int, default=128)
    parser.add_argument("--record-bytes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--folder", type=Path, help="default: the temporary folder")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        source, data = Path(scratch) / "kafka", Path(scratch) / "data"
        size = make(source, options)
        print(f"{size / 1e6:.0f} MB in {options.partitions} partitions, batches of "
              f"{options.batch_records} records of {options.record_bytes} bytes")  # fmt: skip
        for _ in range(options.rounds):
            os.sync()
            seconds, cpu = run(source, data, options.verify)
            print(f"{size / seconds / 1e6:6.0f} MB/s  {cpu / size * 1e9:5.2f} CPU s/GB")
            shutil.rmtree(data)


def make(folder: Path, options: argparse.Namespace) -> int:
    """A log folder with one topic. Returns the bytes of its segments."""
    folder.mkdir()
    (folder / "meta.properties").write_text("version=0\nbroker.id=1\n")
    (folder / ".kafka_cleanshutdown").touch()
    value = os.urandom(options.record_bytes)
    records = [Record(n, _NOW + n, None, value, []) for n in range(options.batch_records)]
    batch = bytearray(build_batch(records))
    count = options.bytes // options.partitions // len(batch)
    size = 0
    for partition in range(options.partitions):
        path = folder / f"records-{partition}"
        path.mkdir()
        for first in range(0, count, _SEGMENT_BYTES // len(batch)):
            with (path / f"{first * len(records):020}.log").open("wb") as file:
                for number in range(first, min(count, first + _SEGMENT_BYTES // len(batch))):
                    rebase(batch, number * len(records), 0)
                    size += file.write(batch)
    return size


def run(source: Path, data: Path, verify: bool) -> tuple[float, float]:
    """Seconds, and CPU seconds, of one import in a process of its own."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    command = [sys.executable, "-m", "quafka", "import", str(source), "--data", str(data)]
    command += ["--verify"] if verify else []
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, cpu
