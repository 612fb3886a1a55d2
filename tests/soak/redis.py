"""Redis Streams for long: a million entries, trimming, failovers, kills of Redis and of the broker.

Each round runs every scenario of the integration tests on servers of its own: what Redis has
acknowledged and kept is read in order, once.
"""

from __future__ import annotations

import shutil
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.integration import test_redis_operations as operations
from tests.integration import test_redis_streams as streams
from tests.support.redis_server import RedisServer

_MILLION = 1_000_000


def scenarios() -> dict[str, Callable[[Path], None]]:
    """What a round consists of."""
    return {
        "a million entries": partial(streams.read_many, count=_MILLION // 4),
        "trimming": _with_server(streams.test_trimming_while_it_is_read),
        "failover": streams.test_a_failover_to_a_replica,
        "kills of Redis, AOF": _with_server(
            streams.test_a_killed_redis_costs_no_record_that_it_kept
        ),
        "kills of Redis, no AOF": streams.test_without_aof_a_killed_redis_is_read_on,
        "kills of the broker": _with_server(
            operations.test_a_killed_broker_doubles_and_loses_nothing
        ),
    }


def _with_server(scenario: Callable[[Path, RedisServer], None]) -> Callable[[Path], None]:
    def run(folder: Path) -> None:
        always = ("--appendonly", "yes", "--appendfsync", "always")
        with RedisServer(folder / "redis", *always) as server:
            scenario(folder, server)

    return run


def soak(seconds: float, _seed: int) -> bool:
    """Rounds of all scenarios, until the time is over or one fails."""
    until, rounds = time.monotonic() + seconds, 0
    while time.monotonic() < until or not rounds:
        rounds += 1
        for name, scenario in scenarios().items():
            folder = Path(tempfile.mkdtemp(prefix="soak-redis-"))
            began = time.monotonic()
            try:
                scenario(folder)
            except Exception:
                traceback.print_exc()
                print(f"  round {rounds}, {name}: see {folder}", flush=True)
                return False
            print(f"  round {rounds}, {name}: {time.monotonic() - began:.1f} s", flush=True)
            shutil.rmtree(folder, ignore_errors=True)
    return True
