"""A cut of the log in a local data folder, taken by the broker that runs there, or in its place."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from quafka_broker.config import BrokerConfig
from quafka_broker.data_folder import DataFolder
from quafka_broker.snapshots.control_socket import NoBrokerError, request_pin
from quafka_broker.snapshots.cut import Cut
from quafka_broker.snapshots.cut_files import CutFiles, PinnedFiles
from quafka_broker.snapshots.pins import held, pin, pinned_cut
from quafka_broker.state import BrokerState
from quafka_broker.wal.disk import RealDisk
from quafka_broker.wal.fsync import FsyncPolicy
from quafka_broker.wal.log import Log
from quafka_telemetry.startup import StartupError

_SEGMENT_BYTES = 1 << 30
_START_SECONDS = 30.0  # a broker may be recovering its log, or another command may have it
_POLL_SECONDS = 0.1


@contextmanager
def local_cut(data: Path) -> Generator[tuple[Cut, CutFiles]]:
    """A cut of the log in a data folder, and its files for as long as they are needed. Blocks.

    Raises:
        ControlError: the broker that runs there cannot take it.
        StartupError: no broker runs there, and the folder cannot be used either.
        DamagedLogError, BadRegistryError, StorageError: the log cannot be read.
        OSError: the files cannot be held.
    """
    name = _pin(data)
    with held(data, name) as folder:
        yield pinned_cut(data, name), PinnedFiles(folder)


def _pin(data: Path) -> str:
    """Have a cut taken, or take it. Waits for a broker that is just starting."""
    until = time.monotonic() + _START_SECONDS
    while True:
        try:
            return request_pin(data)
        except NoBrokerError:
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
