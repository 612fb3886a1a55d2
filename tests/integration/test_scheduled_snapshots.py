"""Snapshots that a broker makes by itself: made, kept, and tried again, and said to operators."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from quafka.cli import main
from quafka_broker.config.settings import BrokerConfig, StoreUrl
from quafka_broker.server import Broker
from quafka_telemetry.startup import StartupError
from quafka_telemetry.tracing import Tracer
from tests.support.cluster import Cluster
from tests.support.command import Command
from tests.support.prometheus import get, samples
from tests.support.snapshot_reader import manifests

pytestmark = pytest.mark.long

SECONDS = 40.0


def until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.05)


@pytest.mark.local_log
def test_they_are_made_dropped_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.nice", int)
    dest, away = tmp_path / "dest", tmp_path / "away"
    settings = {"interval-ms": "200", "dest": str(dest), "keep": "2"}
    flags = [each for name, value in settings.items() for each in (f"--snapshot-{name}", value)]
    with Cluster(tmp_path, broker_args=tuple(flags)) as cluster:

        def metric(name: str) -> float:
            _, _, text = get(cluster.broker.ready["operations"], "/metrics")
            return samples(text)[f"quafka_snapshot{name}", frozenset()]

        def by_hand() -> bool:
            return main(["snapshot", "create", str(dest), "--data", str(cluster.data)]) == 0

        quafka = Command(cluster.bootstrap)
        quafka("topics create orders")
        until(by_hand)  # as soon as the broker lets it
        until(lambda: metric("s_total") >= 4)
        found = manifests(dest)
        assert sum(not one.scheduled for one in found) == 1, "that one is nobody else's to drop"
        assert sum(one.scheduled for one in found) <= 3  # one may be about to go
        assert found[-1].topics[0].name == "orders"
        assert 0 < metric("_age_seconds") < SECONDS
        assert metric("_interval_seconds") == 0.2
        assert "s old, the interval 0 s" in quafka("doctor").out

        dest.rename(away)
        dest.touch()
        failures = metric("_failures_total")
        until(lambda: metric("_failures_total") > failures)
        assert "it is not a folder" in " ".join(quafka("doctor").out.split())
        status, _, page = get(cluster.broker.ready["operations"], "/statusz")
        assert "it is not a folder" in page
        assert get(cluster.broker.ready["operations"], "/readyz")[0] == status == 200
        dest.unlink()
        away.rename(dest)
        made = metric("s_total")
        until(lambda: metric("s_total") > made)
    assert "no snapshot in" in cluster.logs


@pytest.mark.parametrize(
    ("dest", "said"),
    [("", "snapshot.dest is not"), ("ftp://x/y", "snapshot.dest, ftp://x/y: a store is a folder")],
)
async def test_settings_that_make_no_sense_together(tmp_path: Path, dest: str, said: str) -> None:
    config = BrokerConfig(data=tmp_path, mesh_listen="127.0.0.1:0", ops_listen="127.0.0.1:0")
    await _is_refused(replace(config, snapshot_interval_ms=1_000, snapshot_dest=dest), said)


async def test_a_broker_in_a_store_makes_none(tmp_path: Path) -> None:
    config = BrokerConfig(mesh_listen="127.0.0.1:0", ops_listen="127.0.0.1:0")
    config = replace(config, data=StoreUrl(tmp_path.as_uri()), cache=tmp_path / "cache")
    config = replace(config, snapshot_interval_ms=1_000, snapshot_dest=str(tmp_path / "dest"))
    await _is_refused(config, "quafka snapshot create URL")


async def _is_refused(config: BrokerConfig, said: str) -> None:
    broker = Broker(config, Tracer())
    try:
        with pytest.raises(StartupError, match=said):
            await broker.start()
    finally:
        await broker.close()
