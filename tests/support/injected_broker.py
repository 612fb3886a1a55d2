"""`python -m tests.support.injected_broker ... quafka broker ...`: a store with latency.

A broker or gateway process whose object store is in its memory, or at its URL with
`TEST_STORE_SHARED=1`, and answers as late as a real one: `TEST_STORE_MEDIAN_MS` is the median of a
lognormal latency of each call. Stands in front of the usual command.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from quafka import cli
from quafka_broker.shard import stored_log
from quafka_gateway.cluster import follower
from quafka_objects.address import open_store
from quafka_objects.store import ObjectStore
from tests.support.injected_store import InjectedStore, Latency
from tests.support.store_folder import RecordedStore

COMMAND = (sys.executable, "-m", "tests.support.injected_broker")
MEDIAN, SHARED = "TEST_STORE_MEDIAN_MS", "TEST_STORE_SHARED"


def _open_slow(
    address: str, options: Mapping[str, str] | None = None, seconds: float | None = None
) -> ObjectStore:
    latency = Latency(float(os.environ[MEDIAN]) / 1_000)
    shared = os.environ.get(SHARED)
    inner = open_store(address, options, seconds) if shared else RecordedStore()
    return InjectedStore(inner, latency=latency)


if __name__ == "__main__":
    for module in (stored_log, follower):
        setattr(module, "open_store", _open_slow)  # noqa: B010 - it is imported there
    del sys.argv[1 : sys.argv.index("quafka") + 1]
    sys.exit(cli.main())
