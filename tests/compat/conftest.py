"""Connections, clusters for groups, and clients that must be installed first."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.group_members import GROUPS
from tests.support.raw_client import RawClient

HERE = Path(__file__).parent / "kafkajs"


@pytest.fixture
def client(shared_cluster: Cluster) -> Iterator[RawClient]:
    with RawClient(shared_cluster.address) as connected:
        yield connected


@pytest.fixture(scope="module")
def group_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose groups do not wait for more members at first."""
    with Cluster(tmp_path_factory.mktemp("groups"), broker_args=GROUPS) as running:
        yield running


@pytest.fixture(scope="session")
def kafkajs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the scripts and kafkajs installed; skips where there is no npm."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed (Debian: apt-get install nodejs npm)")
    folder = tmp_path_factory.mktemp("kafkajs")
    for source in HERE.iterdir():
        shutil.copy(source, folder / source.name)
    command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--silent"]
    subprocess.run(command, cwd=folder, check=True, timeout=110)
    return folder
