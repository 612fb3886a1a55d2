"""Pods of the Helm chart, as processes with their variables, files, scripts and probes."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from quafka_mesh_ops.identity import Identity
from tests.support import chart
from tests.support.certificates import Authority
from tests.support.chart import objects, render
from tests.support.pods import Pods
from tests.support.secrets_api import SecretsApi

pytestmark = [pytest.mark.long, pytest.mark.local_log, pytest.mark.needs("helm")]


@contextmanager
def pods_of(values: dict[str, Any], folder: Path) -> Generator[Pods]:
    """Pods of the rendered chart, with an API that has no Secret yet."""
    found = objects(render(values))
    with SecretsApi(folder / "authority") as api, Pods(found, folder, api) as pods:
        yield pods


def test_disks_with_names_of_pods(tmp_path: Path) -> None:
    values = {
        "gateway": {"perPod": True, "replicas": 2},
        "broker": {"replicas": 2, "routes": [{"match": "quafka-helm-*", "broker": 1}]},
    }
    with pods_of(values, tmp_path) as pods:
        assert "try-quafka-broker-keys: created" in pods.run_job("try-quafka-keys")
        for number in range(2):
            pods.start("StatefulSet", "try-quafka-broker", number)
        for number in range(2):
            pods.start("StatefulSet", "try-quafka-gateway", number)
        assert "a record of quafka-helm-test-" in pods.run_pod("try-quafka-test")
        ids = [pods.processes[f"try-quafka-broker-{each}"].ready["node_id"] for each in range(2)]
        listed = pods.secrets["try-quafka-broker-keys"]["brokers"].decode().split(",")
        assert [each.partition("@")[0] for each in listed] == ids
        page = pods.page("try-quafka-gateway-1", 9093, "/mesh")
        mesh = {each["address"] for each in page["peers"]}
        assert len(mesh) == 2
        pods.stop()


def test_a_store_found_by_its_url(tmp_path: Path) -> None:
    url = f"file://{tmp_path / 'store'}"
    values = {
        "storage": "store",
        "store": {"url": url, "shards": 2},
        "broker": {"replicas": 2, "config": {"wal.object.linger.ms": 2}},
    }
    with pods_of(values, tmp_path) as pods:
        pods.run_job("try-quafka-keys")
        for number in range(2):
            pods.start("Deployment", "try-quafka-broker", number)
        pods.start("Deployment", "try-quafka-gateway")
        assert "a record of quafka-helm-test-" in pods.run_pod("try-quafka-test")
        command = ["quafka", "users", "add", "admin", "--broker-data", "/var/lib/quafka/cache"]
        assert " ".join(command) in (chart.CHART / "templates" / "NOTES.txt").read_text()
        added: list[str] = []
        for number in range(2):
            with suppress(AssertionError):  # it has not shard 0
                added.append(
                    pods.execute(
                        f"try-quafka-broker-{number}",
                        "Deployment",
                        "try-quafka-broker",
                        command,
                        "secret\n",
                    )
                )
        assert len(added) == 1
        pods.stop()


def test_tls_and_logins(tmp_path: Path) -> None:
    values = {
        "tls": {"secret": "certificate"},
        "gateway": {
            "superUsers": ["User:admin"],
            "listeners": {"internal": {"protocol": "SASL_SSL"}},
        },
        "test": {"commandConfigSecret": "tester"},
        "console": {"enabled": True},
    }
    issuer = Authority(tmp_path / "clients")
    pem = issuer.issue("gateway", ("127.0.0.1",)).read_bytes()
    with pods_of(values, tmp_path) as pods:
        authority = issuer.file.read_bytes()
        pods.secrets["certificate"] = {"tls.crt": pem, "tls.key": pem, "ca.crt": authority}
        pods.secrets["tester"] = {
            "client.properties": (
                "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nsasl.username=admin\n"
                f"sasl.password=for-the-test\nssl.ca.location={issuer.file}\n"
            ).encode()
        }
        pods.run_job("try-quafka-keys")
        pods.start("StatefulSet", "try-quafka-broker")
        pods.start("Deployment", "try-quafka-gateway")
        command = ["quafka", "users", "add", "admin", "--broker-data", "/var/lib/quafka/data"]
        assert " ".join(command) in (chart.CHART / "templates" / "NOTES.txt").read_text()
        pods.execute("try-quafka-broker-0", "StatefulSet", "try-quafka-broker", command,
                     "for-the-test\n")  # fmt: skip
        assert "a record of quafka-helm-test-" in pods.run_pod("try-quafka-test")
        pods.start("Deployment", "try-quafka-console")
        pods.stop()


def test_the_keys_job_keeps_keys_and_renews_lists(tmp_path: Path) -> None:
    other = "ab" * 32
    with pods_of({}, tmp_path) as pods:
        pods.run_job("try-quafka-keys")
        first = json.loads(json.dumps({name: sorted(each) for name, each in pods.secrets.items()}))
        assert first == {
            "try-quafka-broker-keys": ["allowed", "broker-0.key", "brokers"],
            "try-quafka-gateway-keys": ["allowed", "node.key"],
        }
        before = {name: dict(each) for name, each in pods.secrets.items()}
        key = tmp_path / "gateway.key"
        key.touch(0o600)
        key.write_bytes(before["try-quafka-gateway-keys"]["node.key"])
        gateway = Identity.load(key).node_id
        allowed = before["try-quafka-broker-keys"]["allowed"].decode()
        assert allowed == f"{gateway} orgs=* may=serve,administer\n"
        assert "unchanged" in pods.run_job("try-quafka-keys")
        assert pods.secrets == before
        pods.found = objects(render({
            "broker": {"replicas": 2, "routes": [{"match": "a", "broker": 1}],
                       "gatewayRights": {"orgs": "1,7-9", "may": ""},
                       "allow": [{"node": other, "may": "snapshot"}]},
        }))  # fmt: skip
        pods.run_job("try-quafka-keys")
        brokers = pods.secrets["try-quafka-broker-keys"]
        old = before["try-quafka-broker-keys"]
        assert brokers["broker-0.key"] == old["broker-0.key"]
        assert brokers["broker-1.key"] != old["broker-0.key"]
        assert pods.secrets["try-quafka-gateway-keys"]["node.key"] == key.read_bytes()
        lines = brokers["allowed"].decode().splitlines()
        assert lines == [
            f"{gateway} orgs=1,7-9 may=serve,administer",
            f"{other} orgs=* may=snapshot",
        ]
        assert len(pods.secrets["try-quafka-gateway-keys"]["allowed"].splitlines()) == 2
