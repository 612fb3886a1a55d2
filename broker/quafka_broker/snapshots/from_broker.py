"""A cut to make a snapshot of: from the broker that runs in a data folder, or from the folder."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from quafka_broker.config import BrokerConfig
from quafka_broker.server import DataFolder
from quafka_broker.snapshots.control import NobodyThereError, ask
from quafka_broker.snapshots.pins import Cut, held, pin, read_pin
from quafka_broker.snapshots.source import PinnedFiles, Source
from quafka_broker.state import BrokerState
from quafka_broker.wal.disk import RealDisk
from quafka_broker.wal.log import Log
from quafka_broker.wal.writer import FsyncPolicy
from quafka_telemetry.startup import StartupError

_SEGMENT_BYTES = 1 << 30
_START_SECONDS = 30.0  # a broker may be recovering its log, or another command may have it
_POLL_SECONDS = 0.1


@contextmanager
def local_cut(data: Path) -> Generator[tuple[Cut, Source]]:
    """A cut of the log in a data folder, and its files for as long as they are needed. Blocks.

    Raises:
        ControlError: the broker that runs there takes none.
        StartupError: no broker runs there, and the folder cannot be used either.
        DamagedLogError, BadRegistryError, StorageError: it has no log that can be read.
        OSError: its files cannot be held.
    """
    name = _pin(data)
    with held(data, name) as folder:
        yield read_pin(data, name), PinnedFiles(folder)


def _pin(data: Path) -> str:
    """Have a cut taken, or take it; a broker that starts just now is waited for."""
    until = time.monotonic() + _START_SECONDS
    while True:
        try:
            return str(ask(data, {"do": "pin"})["pin"])
        except NobodyThereError:
            pass
        try:
            return asyncio.run(_pin_stopped(data))
        except StartupError as e:
            if not isinstance(e.__cause__, BlockingIOError) or time.monotonic() > until:
                raise
        time.sleep(_POLL_SECONDS)


async def _pin_stopped(data: Path) -> str:
    """Take the cut in the place of the broker, which may start again as soon as it is taken."""
    folder = DataFolder(data)
    folder.hold()
    try:
        log = Log(RealDisk(folder.wal), FsyncPolicy(), _SEGMENT_BYTES)
        state = BrokerState(BrokerConfig(data=data), log)
        await asyncio.to_thread(log.open, state.producers)
        log.start()
        try:
            await state.replay_registry()
            await state.replay_groups()
            return await pin(state, data, local=True)
        finally:
            await log.close()
    finally:
        folder.release()
