"""`python -m tests.support.trace_picture OUT.png`: a trace of the product in Jaeger's own page.

Needs what `jaeger.py` names, JAEGER_UI included, and chromium.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from tests.support.cluster import Cluster
from tests.support.jaeger import jaeger, jaeger_binary
from tests.support.kafka_calls import fetch, metadata, produce
from tests.support.raw_client import RawClient

_SPANS = 12
_CHROMIUM = (
    "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars", "--window-size=1400,640", "--virtual-time-budget=15000",
)  # fmt: skip


def wake_a_poll(cluster: Cluster) -> None:
    """A consumer that waits, and a producer that has something for it a while later."""
    with (
        RawClient(cluster.address, client_id="consumer") as consumer,
        RawClient(cluster.address, client_id="producer") as producer,
    ):
        metadata(producer, "flights")
        produce(producer, "flights", b"UA1545")
        fetch(consumer, "flights", 0)
        later = threading.Timer(0.03, produce, (producer, "flights", b"AA1141"))
        later.start()
        fetch(consumer, "flights", 1, max_wait_ms=5_000)
        later.join()


def main() -> None:
    """Run all of it, and take the picture."""
    binary = jaeger_binary()
    assert binary is not None, "no jaeger"
    picture = Path(sys.argv[1]).absolute()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with jaeger(binary, folder) as tracing:
            env = {"OTEL_EXPORTER_OTLP_ENDPOINT": tracing.otlp, "OTEL_BSP_SCHEDULE_DELAY": "50"}
            with Cluster(folder, env=env) as cluster:
                wake_a_poll(cluster)
            trace = tracing.trace("quafka-broker", "broker.fetch.park", {}, _SPANS)
            page = f"{tracing.page}/trace/{trace['traceID']}"
            profile = f"--user-data-dir={folder / 'chromium'}"
            subprocess.run([*_CHROMIUM, profile, f"--screenshot={picture}", page], check=True)


if __name__ == "__main__":
    main()
