"""Takes a cut of the log in a local data folder, by its broker or, if it is stopped, without it."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from quafka_broker.config.settings import BrokerConfig
from quafka_broker.snapshots.control_socket import NoBrokerError, request_pin
from quafka_broker.snapshots.cut import Cut
from quafka_broker.snapshots.cut_files import CutFiles, PinnedFiles
from quafka_broker.snapshots.pins import held, pin, pinned_cut
from quafka_broker.state import BrokerState
from quafka_broker.wal.data_folder import DataFolder
from quafka_broker.wal.disk import RealDisk
from quafka_broker.wal.fsync import FsyncPolicy
from quafka_broker.wal.log import Log
from quafka_loop import clock
from quafka_telemetry.startup import StartupError

_SEGMENT_BYTES = 1 << 30
_START_SECONDS = 30.0  # a broker may be recovering its log, or another command may hold it
_POLL_SECONDS = 0.1


@contextmanager
def local_cut(data: Path) -> Generator[tuple[Cut, CutFiles]]:
    """Take a cut of the log in a data folder, and hold its files within the block. Blocks.

    Raises:
        ControlError: the running broker cannot take the cut.
        StartupError: no broker runs in the folder, and the folder cannot be used.
        DamagedLogError, BadRegistryError, StorageError: the log cannot be read.
        OSError: the files cannot be held.
    """
    name = _pin(data)
    with held(data, name) as folder:
        yield pinned_cut(data, name), PinnedFiles(folder)


def _pin(data: Path) -> str:
    """Request a cut, or take it. Waits for a broker that is just starting."""
    until = clock.monotonic() + _START_SECONDS
    while True:
        try:
            return request_pin(data)
        except NoBrokerError:
            pass
        try:
            return asyncio.run(_pin_stopped(data))
        except StartupError as e:
            if not isinstance(e.__cause__, BlockingIOError) or clock.monotonic() > until:
                raise
        clock.sleep(_POLL_SECONDS)


async def _pin_stopped(data: Path) -> str:
    """Take the cut of a stopped broker, which may start again right after it."""
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
