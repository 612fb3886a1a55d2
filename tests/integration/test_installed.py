"""Quafka as the container file installs it, and in its image: logs in object stores, topics in
Redis, and the commands that write and read records."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.support import installed
from tests.support.cluster import Cluster
from tests.support.consoles import console_of
from tests.support.installed import Installed
from tests.support.redis_server import RedisServer
from tests.support.s3 import s3_server

pytestmark = pytest.mark.long

FOLDER = pytest.mark.needs(fetch=installed.install)
IMAGE = pytest.mark.needs("debootstrap", "podman", "runc", fetch=installed.build)
LINES = "first\nsecond\n"


@pytest.fixture(params=[pytest.param("folder", marks=FOLDER), pytest.param("image", marks=IMAGE)])
def quafka(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Installed]:
    if request.param == "image":
        installed.image_or_skip()
    folder = tmp_path / "cluster"
    folder.mkdir()
    yield Installed(request.param, folder)
    if request.param == "image":
        installed.remove_containers(folder)


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The URL of an object store, and the environment that it asks for."""
    if request.param == "folder":
        yield f"file://{tmp_path / 'cluster' / 'store'}", {}
        return
    with s3_server() as server:
        yield server.url, server.environment


@pytest.mark.needs("redis-server")
def test_a_log_in_a_store_and_a_topic_in_redis(
    quafka: Installed, store: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    url, environment = store
    folder = tmp_path / "cluster"
    with RedisServer(tmp_path / "redis") as redis:
        cluster = Cluster(
            folder, ("--sources-redis-allowed", redis.address), env=environment, store=url,
            broker_command=quafka.command, gateway_command=quafka.command,
        )  # fmt: skip
        quafka.own()
        at = ("--brokers", cluster.bootstrap)
        with cluster:
            quafka.run("topics", "create", "clicks", "--source", redis.source("clicks"), *at)
            for topic in ("orders", "clicks"):
                quafka.run("produce", "-t", topic, *at, stdin=LINES)
                assert quafka.run("consume", "-t", topic, "-e", *at) == LINES
            with redis.client() as client:
                assert client.xlen("clicks") == 2
            # The store has all of it: the broker loses its folder.
            cluster.stop()
            shutil.rmtree(cluster.data)
            cluster.restart()
            for topic in ("orders", "clicks"):
                assert quafka.run("consume", "-t", topic, "-e", *at) == LINES


def test_the_console_serves_its_pages(quafka: Installed, tmp_path: Path) -> None:
    quafka.own()
    with (
        Cluster(tmp_path / "product") as product,
        console_of(product, tmp_path, command=quafka.command) as (url, _),
        urlopen(f"{url}/topics", timeout=60) as page,
    ):
        assert "Create a topic" in str(page.read(), "utf-8")


@FOLDER
def test_what_pypi_shows() -> None:
    (file,) = installed.packages().glob("quafka-*.dist-info/METADATA")
    shown = file.read_text("utf-8")
    assert "Project-URL: Source, https://github.com/quafka/quafka\n" in shown
    links = re.findall(r"\]\(([^)\s]+)\)", shown)
    assert len(links) > 10
    assert [link for link in links if not link.startswith("https://")] == []


@FOLDER
def test_every_installed_package_has_types() -> None:
    record = next(installed.packages().glob("quafka-*.dist-info/RECORD")).read_text()
    files = [line.partition(",")[0] for line in record.splitlines()]
    own = {name.partition("/")[0] for name in files if name.endswith("/__init__.py")}
    assert len(own) > 8
    assert {f"{name}/py.typed" for name in own} <= {*files}


@IMAGE
def test_the_health_check(tmp_path: Path) -> None:
    installed.image_or_skip()
    with Cluster(tmp_path) as cluster:
        operations = cluster.broker.ready["operations"]
        assert installed.is_healthy(operations)
    assert not installed.is_healthy(operations)
