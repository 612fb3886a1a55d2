"""All files that brokers, snapshots and `file://` stores write, by real processes without a umask:
their user writes them, its group reads them, others do nothing."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from quafka.cli import main
from tests.support.cluster import Cluster
from tests.support.kafka_calls import create_topic, produce
from tests.support.kafka_folders import recorded
from tests.support.raw_client import RawClient
from tests.support.sasl_users import alter_users, upsertion

pytestmark = pytest.mark.long

OWN_PARENT = {"TZ": "UTC"}
"""With variables of its own, a process is not forked from one that has another umask."""
SMALL = ("--wal-segment-bytes", "65536")
RIGHT = {
    stat.S_IFREG: {0o640, 0o600},
    stat.S_IFDIR: {0o750, 0o700},
    stat.S_IFSOCK: {0o600},
}
"""A folder of mode 0700 may have anything in it."""


@pytest.fixture(autouse=True)
def no_umask(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("os.nice", lambda _by: 0)
    before = os.umask(0)
    yield
    os.umask(before)


def modes(root: Path) -> tuple[dict[str, str], int]:
    """The files and folders with a wrong mode, and the number of all."""
    wrong: dict[str, str] = {}
    count = 0
    for place, folders, names in os.walk(root):
        if stat.S_IMODE(Path(place).stat().st_mode) == 0o700:
            folders.clear()
            continue
        for path in (Path(place), *(Path(place) / name for name in names)):
            mode = path.lstat().st_mode
            count += 1
            if stat.S_IMODE(mode) not in RIGHT[stat.S_IFMT(mode)]:
                wrong[str(path)] = oct(stat.S_IMODE(mode))
    return wrong, count


def _fill(cluster: Cluster) -> None:
    with RawClient(cluster.address) as client:
        create_topic(client, "t")
        for _ in range(8):
            produce(client, "t", os.urandom(60_000))
    alter_users(cluster.address, upsertion("alice", "secret"))


def _quafka(*arguments: str | Path) -> None:
    assert main(["snapshot", *map(str, arguments)]) == 0


def _check(*folders: Path, least: int) -> None:
    for folder in folders:
        wrong, count = modes(folder)
        assert wrong == {}
        assert count >= least, folder


@pytest.mark.local_log
def test_a_data_folder_its_snapshot_and_what_is_restored(tmp_path: Path) -> None:
    dest, restored = tmp_path / "dest", tmp_path / "restored"
    with Cluster(tmp_path, SMALL, env=OWN_PARENT) as cluster:
        _fill(cluster)
        _quafka("create", dest, "--data", cluster.data, "--format", "parquet")
        _check(cluster.data, dest, least=10)
    _check(cluster.data, least=10)  # with the checkpoint of the end
    _quafka("restore", dest, "--data", restored)
    _check(restored, least=5)


def test_a_log_in_a_store_its_cache_and_its_snapshot(tmp_path: Path) -> None:
    store, restored = tmp_path / "store", tmp_path / "restored"
    with Cluster(tmp_path, SMALL, env=OWN_PARENT, store=f"file://{store}") as cluster:
        _fill(cluster)
        _quafka("create", f"file://{store}")
        _check(store, cluster.data, least=10)
    _check(store, cluster.data, least=5)
    _quafka("restore", f"file://{store}", "--data", restored)
    _check(restored, least=5)


@pytest.mark.local_log
def test_an_import(tmp_path: Path) -> None:
    data = tmp_path / "data"
    recorded(tmp_path)
    assert main(["import", str(tmp_path / "killed"), "--data", str(data)]) == 0
    _check(data, least=5)
    assert logging.getLogger("quafka.broker").level == logging.NOTSET, "other programs log on"
