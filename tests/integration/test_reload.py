"""SIGHUP: running programs read their files again, and nothing ends."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.integration.test_up import Up
from tests.support.cluster import Cluster
from tests.support.kafka_calls import fetch, metadata, produce, values
from tests.support.raw_client import RawClient
from tests.unit.gateway.sasl.tokens import Issuer

pytestmark = pytest.mark.long

SECONDS = 30
LINE = "SIGHUP: certificates, allow-lists and the keys of tokens are read again"


def test_broker_and_gateway_reload(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    keys.write_bytes(Issuer().jwks)
    args = (
        *("--sasl-enabled-mechanisms", "OAUTHBEARER", "--super-users", "User:ANONYMOUS"),
        *("--listener-security-protocol-map", "INSIDE:PLAINTEXT,CLIENTS:SASL_PLAINTEXT"),
        *("--sasl-oauthbearer-jwks-endpoint-url", keys.as_uri()),
        *("--sasl-oauthbearer-expected-audience", "kafka"),
    )
    listeners = "INSIDE://127.0.0.1:0,CLIENTS://127.0.0.1:0"
    with Cluster(tmp_path, gateway_args=args, listeners=listeners) as cluster:
        with RawClient(cluster.address_of("INSIDE")) as client:
            metadata(client, "t")
            produce(client, "t", b"before")
            keys.write_bytes(b"garbage")  # read again in an hour, without the signal
            for process in (cluster.broker, cluster.gateway):
                os.kill(process.pid, signal.SIGHUP)
            until = time.monotonic() + SECONDS
            while "cannot read the keys of tokens" not in cluster.logs or (
                cluster.logs.count(LINE) < 2
            ):
                assert time.monotonic() < until, cluster.logs
                time.sleep(0.05)
            produce(client, "t", b"after")
            assert values(fetch(client, "t", 0)) == [b"before", b"after"]
        assert cluster.logs.count(LINE) == 2
        assert (cluster.gateway.stop(), cluster.broker.stop()) == (0, 0)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_up_passes_it_on(tmp_path: Path, workers: str) -> None:
    with Up(tmp_path / "data", "127.0.0.1:0", "--workers", workers) as up:
        address = up.wait_ready()
        children = up.children()
        with RawClient(address) as client:
            metadata(client, "t")
            up.process.send_signal(signal.SIGHUP)
            time.sleep(1.0)
            produce(client, "t", b"after")
        assert up.children() == children
        code, printed = up.interrupt()
    assert code == 0, printed
    assert printed.count(LINE) == 1 + int(workers)
