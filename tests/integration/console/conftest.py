"""A product with a console, and a browser that is driven through it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import Cluster, Process
from tests.support.driver import Driver, driven


@pytest.fixture(scope="module")
def console(shared_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the console of a cluster."""
    folder = tmp_path_factory.mktemp("console")
    host, port = shared_cluster.address
    ports = [
        f"http://{process.ready['operations']}"
        for process in (shared_cluster.gateway, shared_cluster.broker)
    ]
    process = Process(
        [
            "console", "--console-nice", "0", "--console-listen", "127.0.0.1:0",
            "--console-brokers", f"{host}:{port}",
            "--console-operations", ",".join(ports),
        ],
        folder / "console.log",
    )  # fmt: skip
    yield process.ready["console"]
    assert process.stop() == 0
    assert "Traceback" not in (folder / "console.log").read_text()


@pytest.fixture
def driver(console: str, tmp_path: Path) -> Iterator[Driver]:
    """A browser. At the end of a test its console must have no errors."""
    with driven(console, tmp_path / "profile") as found:
        yield found
        assert found.errors() == []
