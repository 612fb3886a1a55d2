"""Connections and topics for the tests of one gateway and broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster
from tests.support.fetch_calls import create
from tests.support.raw_client import RawClient


@pytest.fixture
def client(shared_cluster: Cluster) -> Iterator[RawClient]:
    with RawClient(shared_cluster.address) as connected:
        yield connected


@pytest.fixture
def other(shared_cluster: Cluster) -> Iterator[RawClient]:
    """A second connection, for what happens while the first waits."""
    with RawClient(shared_cluster.address) as connected:
        yield connected


@pytest.fixture
def topic(request: pytest.FixtureRequest, client: RawClient) -> str:
    """A topic of this test's own, with four partitions."""
    name: str = request.node.name.replace("[", "-").replace("]", "").replace(" ", "-")
    create(client, name)
    return name
