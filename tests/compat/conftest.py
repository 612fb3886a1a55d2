"""Connections, clusters for groups, and clients that must be installed first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.group_members import GROUPS
from tests.support.kafkajs import installed
from tests.support.raw_client import RawClient


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
def kafkajs() -> Path:
    """A folder with the scripts and kafkajs installed."""
    return installed()
