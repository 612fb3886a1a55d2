"""Makes a broker's scheduled snapshots, `snapshot.interval.ms` apart.

Each is made by a separate process (`due_snapshot`), so that uploads and the zones of a large log
take no time on the event loop. The broker takes the cut, as for the command.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import sys

from quafka_broker.snapshot_status import SchedulerStatus
from quafka_broker.snapshots.open_destination import open_destination
from quafka_broker.state import BrokerState
from quafka_telemetry.startup import StartupError

log = logging.getLogger("quafka.broker.snapshots")

_RETRY_SECONDS = 5.0
_LONGEST_RETRY_SECONDS = 600.0
_TERMINATE_SECONDS = 5.0


class AttemptError(Exception):
    """No snapshot was made. The message gives the reason."""


class SnapshotScheduler:
    """Makes snapshots, one at a time, until it is cancelled."""

    def __init__(self, state: BrokerState, retry_seconds: float = _RETRY_SECONDS) -> None:
        """
        Raises:
            StartupError: the settings contradict each other.
        """
        config = state.configs.broker
        if not config.snapshot_dest:
            raise StartupError(
                "snapshot.interval.ms is set, but snapshot.dest is not: snapshots are written to "
                "this folder, or URL like s3://bucket/path"
            )
        try:
            open_destination(config.snapshot_dest)
        except OSError as e:
            raise StartupError(f"snapshot.dest, {config.snapshot_dest}: {e}") from e
        self._state = state
        self._config = config
        self._status: SchedulerStatus = state.snapshots
        self._retry_seconds = retry_seconds

    async def run(self) -> None:
        """Make one attempt after the other. Failures are logged, counted and retried with backoff.

        The age of the last good snapshot comes from DEST, so that a restart does not change when
        the next one is due.
        """
        failed = 0
        while True:
            try:
                async with asyncio.timeout(self._config.snapshot_pin_max_ms / 1000):
                    cut_ms = await self._attempt()
            except Exception as e:  # a bug must not end the series
                if not isinstance(e, AttemptError | OSError):  # a TimeoutError is an OSError
                    log.exception("a snapshot failed")
                failed += 1
                seconds = self._failed(str(e) or "it took longer than snapshot.pin.max.ms", failed)
            else:
                failed = 0
                self._status.cut_ms, self._status.problem = cut_ms, ""
                seconds = max(0, self._config.snapshot_interval_ms - self._status.age_ms) / 1000
            await asyncio.sleep(max(seconds, 0.1))

    def _failed(self, reason: str, times: int) -> float:
        """Record a failure; returns the seconds until the next attempt."""
        status = self._status
        status.failures += 1
        status.problem = reason
        longest = min(_LONGEST_RETRY_SECONDS, self._config.snapshot_interval_ms / 1000)
        seconds = min(longest, self._retry_seconds * 2.0 ** min(times - 1, 20))
        seconds *= random.uniform(0.75, 1.0)  # noqa: S311 - no secret
        log.error(
            "no snapshot in %s: %s; the next attempt is in %.0f s",
            self._config.snapshot_dest, reason, seconds,
        )  # fmt: skip
        return seconds

    async def _attempt(self) -> int:
        """Make a snapshot if one is due; returns the time of the newest one's cut."""
        config = self._config
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "quafka_broker.snapshots.due_snapshot",
            str(config.folder), config.snapshot_dest, self._state.registry.cluster_id,
            str(config.snapshot_interval_ms), str(config.snapshot_keep),
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            out, err = await process.communicate()
        finally:
            await _end(process)
        if process.returncode != 0:
            lines = err.decode(errors="replace").strip().splitlines()
            raise AttemptError(
                lines[-1] if lines else f"its process exited with {process.returncode}"
            )
        answer = json.loads(out)
        if answer["made"]:
            self._status.made += 1
            log.info("made the snapshot %s in %s", answer["id"], config.snapshot_dest)
        return int(answer["cut_ms"])


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the process if it still runs."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(_TERMINATE_SECONDS):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
