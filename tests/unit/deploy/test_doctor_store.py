"""What the doctor finds about object stores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from quafka.cli import main
from quafka.commands import doctor_store
from quafka.commands.doctor_store import check_store
from quafka_client.checks.findings import Report
from quafka_loop import clock
from quafka_objects.errors import AccessDeniedError, TransientStoreError, UnsafeStoreError
from quafka_objects.folder import FolderStore
from quafka_proto.chain_format import Owner, ShardManifest, encode_manifest, manifest_path


def test_a_store_that_may_hold_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, now = FolderStore(tmp_path), round(clock.time() * 1000)
    owner = Owner("ab" * 32, "broker:9000")
    for manifest in (
        ShardManifest(0, 3, owner, now + 60_000),
        ShardManifest(1, 4, None),
        ShardManifest(2, 5, owner, now - 60_000),
    ):
        store.put(manifest_path(manifest.shard), encode_manifest(manifest))
    store.put("manifest/.0001.00000000.part", b"interrupted")
    assert main(["doctor", "--store", str(tmp_path), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["findings"]
    assert [(each["check"], each["status"]) for each in found] == [
        ("create", "ok"), ("swap", "ok"), ("list", "ok"), ("latency", "ok"),
        ("shards", "ok"), ("shards", "ok"), ("shards", "warn"),
    ]  # fmt: skip
    assert "shard 0, epoch 3: abababababababab at broker:9000" in found[4]["message"]
    assert "released" in found[5]["message"]
    assert "has not renewed its lease" in found[6]["message"]
    store.put(manifest_path(3), b"{}")
    report = Report()
    check_store(report, str(tmp_path))
    assert "a manifest cannot be read" in report.findings[-1].message


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        (UnsafeStoreError("20 of 20 creators"), "another store"),
        (AccessDeniedError("denied"), "credentials"),
        (TransientStoreError("503"), "AWS_ENDPOINT_URL"),
        (OSError("?"), "region"),
    ],
)
def test_stores_that_may_not(
    error: OSError, fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(doctor_store, "verify_store", fail)
    report = Report()
    check_store(report, str(tmp_path))
    [found] = report.findings
    assert (found.check, found.status) == ("store", "fail")
    assert str(error) in found.message
    assert fix in (found.fix or "")


def test_an_address_of_no_store(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--store", "ftp://x"]) == 1
    assert "one of s3://" in capsys.readouterr().out
