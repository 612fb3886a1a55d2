"""An upgrade of a running cluster from the last release, and back; clients lose nothing.

The order is that of docs/upgrade.md: brokers first, and for a rollback gateways first.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from quafka_proto.chain_format import crc_of
from quafka_proto.records import crc32c
from quafka_telemetry.version import version
from tests.support import transactions
from tests.support.cluster import Cluster, Process
from tests.support.kafka_calls import commit, create_topic, produce
from tests.support.prometheus import Scrape
from tests.support.raw_client import RawClient
from tests.support.releases import LAST, release
from tests.support.store_cluster import StoreCluster
from tests.support.transactions import Row, committed
from tests.support.upgrade_load import GROUPS, UpgradeLoad

pytestmark = pytest.mark.long

NEW: tuple[str, ...] = ()
LOG = ("--wal-segment-bytes", "65536", "--wal-checkpoint-bytes", "1048576")
"""Segments are sealed and checkpoints written all the time."""


def running(process: Process) -> str:
    """The version of a process."""
    page = Scrape(process.ready["operations"])
    (labels,) = [each for name, each in page._samples if name == "quafka_build_info"]
    (found,) = [label.partition("=")[2] for label in labels if label.startswith("version=")]
    return found


def replace(cluster: Cluster, program: str, command: tuple[str, ...], *, kill: bool) -> None:
    """Stop a program, or end it by kill -9, and start another version in its place."""
    is_broker = program == "broker"
    process = cluster.broker if is_broker else cluster.gateway
    if kill:
        process.kill()
    else:
        assert process.stop() == 0, process.log.read_text()
    cluster.run_by(program, command)
    (cluster.start_broker if is_broker else cluster.start_gateway)()
    process = cluster.broker if is_broker else cluster.gateway
    assert running(process) == (LAST if command else version())


def test_a_broker_and_its_gateway(tmp_path: Path) -> None:
    """Upgraded by stops, rolled back after kill -9."""
    old = release()
    with (
        Cluster(
            tmp_path, (*GROUPS, *LOG), broker_command=old, gateway_command=old, store=""
        ) as cluster,
        UpgradeLoad(cluster.bootstrap, tmp_path) as load,
    ):
        assert running(cluster.broker) == running(cluster.gateway) == LAST
        for program in ("broker", "gateway"):
            replace(cluster, program, NEW, kill=False)
            load.go_on()
        for program in ("gateway", "broker"):
            replace(cluster, program, old, kill=True)
            load.go_on()


def test_two_brokers_on_one_store(tmp_path: Path) -> None:
    """One is killed and one drained, each time; the other serves meanwhile, in another version."""
    old = release()
    with (
        StoreCluster(tmp_path, shards=2, broker_args=GROUPS, command=old) as cluster,
        UpgradeLoad(cluster.bootstrap(), tmp_path) as load,
    ):
        assert {running(process) for process in cluster.brokers.values()} == {LAST}
        cluster.command = NEW
        cluster.kill("a")
        until(lambda: all(cluster.owners()), cluster)
        assert running(cluster.start_broker("a")) == version()
        load.go_on()
        until_shared(cluster)
        cluster.drain("b")
        assert running(cluster.start_broker("b")) == version()
        cluster.gateways["g"].kill()
        assert running(cluster.start_gateway("g")) == version()
        load.go_on()
        cluster.command = old
        assert cluster.gateways["g"].stop() == 0
        assert running(cluster.start_gateway("g")) == LAST
        until_shared(cluster)
        cluster.drain("a")
        assert running(cluster.start_broker("a")) == LAST
        load.go_on()
        until_shared(cluster)
        cluster.kill("b")
        until(lambda: all(cluster.owners()), cluster)
        assert running(cluster.start_broker("b")) == LAST
        load.go_on()


def until_shared(cluster: StoreCluster) -> None:
    """Wait until both brokers own a shard."""
    until(lambda: sorted(cluster.owners()) == ["a", "b"], cluster)


def until(holds: Callable[[], bool], cluster: StoreCluster) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, cluster.owners()
        time.sleep(0.05)


@pytest.mark.parametrize("back", [False, True], ids=["upgrade", "rollback"])
def test_a_snapshot_of_one_version_is_restored_by_the_other(tmp_path: Path, back: bool) -> None:
    """With an open transaction in it, which ends as an aborted one."""
    writes, reads = (NEW, release()) if back else (release(), NEW)
    copies, again = tmp_path / "copies", tmp_path / "again"
    again.mkdir()
    values = [b"%d" % number for number in range(200)]
    with Cluster(tmp_path, LOG, broker_command=writes, gateway_command=writes, store="") as cluster:
        with RawClient(cluster.address) as client:
            create_topic(client, "t")
            produce(client, "t", *values)
            commit(client, "g", "t", 150)
        open_ = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "open"})
        open_.init_transactions(60)
        open_.begin_transaction()
        open_.produce("t", b"open")
        assert open_.flush(60) == 0
        quafka(writes, "snapshot", "create", "--data", cluster.data, copies)
        open_.abort_transaction(60)
    quafka(reads, "snapshot", "verify", copies)
    data = again / "data"
    quafka(reads, "snapshot", "restore", copies, "--data", data)
    quafka(reads, "wal", "verify", "--data", data)
    with Cluster(
        again, LOG, data=data, broker_command=reads, gateway_command=reads, store=""
    ) as cluster:
        assert [value.encode() for _, _, value in read(cluster, "read_uncommitted")] == [
            *values,
            b"open",
        ]
        assert committed(cluster.bootstrap, "t", "g") == 150


def test_a_log_of_a_later_version_is_refused_unchanged(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, store="")
    with cluster, RawClient(cluster.address) as client:
        create_topic(client, "t")
    segment = cluster.data / "wal" / "000000000000.log"
    header = bytearray(segment.read_bytes())
    header[8] = 2
    header[28:32] = crc32c(header[:28]).to_bytes(4, "big")
    segment.write_bytes(header)
    with pytest.raises(AssertionError, match=r"exit 1\)[^$]*a later version of Quafka wrote it"):
        cluster.start_broker()
    assert segment.read_bytes() == header


@pytest.mark.parametrize("command", [LAST, "new"])
def test_a_store_of_a_later_version_is_refused(tmp_path: Path, command: str) -> None:
    cluster = StoreCluster(tmp_path, brokers=("a",), shards=1)
    with cluster:
        pass
    description = tmp_path / "store" / "cluster"
    values = json.loads(description.read_text())
    del values["crc"]
    values["version"] = 3
    description.write_text(json.dumps({**values, "crc": crc_of(values)}))
    cluster.command = release() if command == LAST else NEW
    message = r"exit 1\)[^$]*cluster's description has version 3; known is 2"
    with pytest.raises(AssertionError, match=message):
        cluster.start_broker("a")


def read(cluster: Cluster, level: str) -> list[Row]:
    return transactions.read(cluster.bootstrap, "t", level, partitions=1)


def quafka(command: tuple[str, ...], *args: str | Path) -> None:
    """Run a command of a version; it must succeed."""
    done = subprocess.run(
        [*command, sys.executable, "-m", "quafka", *map(str, args)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
