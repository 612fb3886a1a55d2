"""Kafka Connect as it comes: a distributed worker, whose state is in three compacted topics."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.admin_calls import own_configs
from tests.support.cluster import Cluster
from tests.support.confluent import consume
from tests.support.java import JAVA_TOOLS, jar, java_class, kafka_tools
from tests.support.raw_client import RawClient

KAFKA = "4.3.0"
SECONDS = 40.0
STATE = {kind: f"connect-{kind}" for kind in ("config", "offset", "status")}


def connect_file() -> Path:
    """The jar of the connectors of files."""
    return jar("org.apache.kafka", "connect-file", KAFKA)


def settings(bootstrap: str, port: int) -> str:
    """A worker's properties."""
    converter = "org.apache.kafka.connect.storage.StringConverter"
    lines = {
        "bootstrap.servers": bootstrap,
        "group.id": "connect",
        "key.converter": converter,
        "value.converter": converter,
        "listeners": f"http://127.0.0.1:{port}",
        "plugin.discovery": "service_load",
        **{f"{kind}.storage.topic": name for kind, name in STATE.items()},
        **{f"{kind}.storage.replication.factor": 1 for kind in STATE},
    }
    return "".join(f"{name}={value}\n" for name, value in lines.items())


@contextmanager
def worker(folder: Path, bootstrap: str) -> Iterator[str]:
    """A worker that answers; its URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    properties = folder / "worker.properties"
    properties.write_text(settings(bootstrap, port))
    jars = [*kafka_tools(), connect_file()]
    command = java_class("org.apache.kafka.connect.cli.ConnectDistributed", jars)
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen([*command, str(properties)], stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}/connectors"
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline and process.poll() is None:
            try:
                ask(url)
                break
            except OSError:  # not listening, or still reading its topics
                time.sleep(0.1)
        else:
            raise AssertionError((folder / "log").read_text()[-3000:])
        yield url
    finally:
        process.terminate()
        process.wait(SECONDS)


def ask(url: str, body: object = None) -> object:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        found: object = json.load(answer)
    return found


@JAVA_TOOLS
@pytest.mark.needs(fetch=connect_file)
def test_a_connector_goes_on_where_it_ended(group_cluster: Cluster, tmp_path: Path) -> None:
    bootstrap = group_cluster.bootstrap
    lines = tmp_path / "lines"
    lines.write_text("a\nb\n")
    config = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "file": str(lines),
        "topic": "lines",
    }
    with worker(tmp_path, bootstrap) as connectors:
        ask(connectors, {"name": "source", "config": config})
        assert [message.value() for message in consume(bootstrap, "lines", 2)] == [b"a", b"b"]
        ask(f"{connectors}/source/restart?includeTasks=true", {})
        with lines.open("a") as more:
            more.write("c\n")
        assert [message.value() for message in consume(bootstrap, "lines", 1, 2)] == [b"c"]
    with RawClient(group_cluster.address) as client:
        for topic in STATE.values():
            assert own_configs(client, topic)["cleanup.policy"] == "compact"
