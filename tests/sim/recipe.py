"""The shape of a run: how many machines, which storage, which settings. Drawn from a seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

SHORT_SEEDS = 1_000
"""Seeds below this are short runs of few clients: `make test-all` plays them."""


_MOVES_S = 12.0
"""By then each broker of a store has its share of the shards."""
OUSTED_S = 8.0
"""A request of the store is given up after five seconds, and a lease is renewed each 1.5."""


@dataclass(frozen=True)
class Recipe:
    """What a seed decides before the run begins.

    Attributes:
        in_store: the log is in the object store; else each broker has a folder.
        shards: of the cluster in the store.
        calm_seconds, fault_seconds, quiet_seconds: the phases of the run. The last one is the most
            that clients have until they make progress again.
        ends_early: the last phase ends when all of them have.
        broker: settings of the brokers.
        bounds: of the checkers.
    """

    seed: int
    in_store: bool
    brokers: int
    gateways: int
    shards: int
    clients: int
    calm_seconds: float
    fault_seconds: float
    quiet_seconds: float
    ends_early: bool
    broker: Mapping[str, Any]
    bounds: Mapping[str, Any] = field(default_factory=dict[str, Any])


def recipe_of(seed: int) -> Recipe:
    """Draw a recipe."""
    random = Random(f"{seed} recipe")
    is_short = seed < SHORT_SEEDS
    in_store = random.random() < 0.5
    brokers = random.choice((2, 2, 3) if in_store else (1, 1, 2))
    return Recipe(
        seed=seed,
        in_store=in_store,
        brokers=brokers,
        gateways=random.choice((1, 2, 2)),
        shards=random.choice((1, 2, 4)),
        clients=random.choice((3, 4) if is_short else (4, 6, 8)),
        calm_seconds=random.choice((0.5, 2.0)),
        fault_seconds=random.choice((4.0, 6.0) if is_short else (8.0, 12.0, 20.0)),
        quiet_seconds=32.0,
        ends_early=is_short or random.random() < 0.7,
        broker=_broker(random, in_store),
        bounds={"moves_s": _MOVES_S, "ousted_s": OUSTED_S} if in_store else {},
    )


def _broker(random: Random, in_store: bool) -> dict[str, Any]:
    """Small segments and checkpoints, so that a short run has many of them."""
    settings: dict[str, Any] = {
        "wal_segment_bytes": random.choice((1 << 16, 1 << 18, 1 << 30)),
        "wal_checkpoint_bytes": random.choice((1 << 20, 256 << 20)),
        "log_cleaner_backoff_ms": random.choice((500, 15_000)),
        "log_retention_check_interval_ms": random.choice((1_000, 300_000)),
        "group_initial_rebalance_delay_ms": random.choice((0, 500)),
        "wal_reserve_bytes": random.choice((0, 1 << 16)),
    }
    if in_store:
        settings["wal_object_linger_ms"] = random.choice((0, 5, 50))
        settings["store_view_interval_ms"] = random.choice((1_000, 30_000))
        settings["store_grace_ms"] = random.choice((15_000, 600_000))
        settings["wal_checkpoint_bytes"] = random.choice((1 << 15, 1 << 20))
    return settings
