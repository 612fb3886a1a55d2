"""The broker's background work for snapshots: ends pins, and fills the zone cache."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from quafka_broker.snapshots.pins import PinLimits, remove_ended_pins
from quafka_broker.snapshots.zone_cache import fill_zone_cache
from quafka_broker.state import BrokerState
from quafka_loop import threads

log = logging.getLogger("quafka.broker.snapshots")

_TURN_SECONDS = 60.0


async def run_housekeeping(state: BrokerState, data: Path) -> None:
    """Run once a minute, until cancelled. Failures are logged."""
    stopped = threads.Event()
    try:
        while True:
            try:
                await asyncio.to_thread(remove_ended_pins, data, PinLimits.of(state.configs.broker))
                segments = state.log.segments()
                await asyncio.to_thread(fill_zone_cache, data, segments, stopped)
            except OSError as e:
                log.warning("cannot end pins or fill the zone cache: %s", e)
            await asyncio.sleep(_TURN_SECONDS)
    finally:
        stopped.set()  # cancelling the task does not end its thread
