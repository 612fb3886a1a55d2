"""Pins, which hold the files of a cut of the log while a snapshot is made from them.

A pin is a folder `pins/<name>` in the broker's data folder: hard links to the segments' files, and
`pin.json`, written last, which has the cut. Whatever the broker frees or rewrites meanwhile, the
pin keeps the old files: a sealed file is never changed in place, and the active one only grows past
the cut. The broker keeps no pins in memory, so they outlive its restarts. They need not survive a
power cut; their readers do not either.

A pin's name has its owner: this machine, or a node. The number of an owner's pins is limited, and
pins end automatically:

- A local pin ends when no process holds it: the command that makes a snapshot locks `pin.json`.
- A pin that is read over the mesh has a lease, which each read renews.
- No pin lives longer than `snapshot.pin.max.ms`.

The names: `local-<random>`, and `remote-<node id>-<org>-<random>`, where org 0 stands for the whole
log. (Older versions use `remote-<random>`.)
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import re
import shutil
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from quafka_broker.config.settings import BrokerConfig
from quafka_broker.snapshots.copies import Copies
from quafka_broker.snapshots.cut import PIN, WHOLE_LOG, Cut, decode_cut, encode_cut, take_cut
from quafka_broker.snapshots.zone_cache import ZONES, zones_name
from quafka_broker.state import BrokerState
from quafka_broker.wal.segment import index_name, log_name
from quafka_loop import clock, file_modes
from quafka_mesh_ops.node_ids import NodeId

log = logging.getLogger("quafka.broker.snapshots")

PINS = "pins"
_GRACE_SECONDS = 60.0  # from the creation of a pin until its creator must have locked it
_LOCAL, _REMOTE = "local-", "remote-"
_NAME = re.compile(r"remote-(?:([0-9a-f]{64})-([0-9]{1,10})-)?[0-9a-f]{16}")


class TooManyPinsError(OSError):
    """The owner has the maximum number of pins."""


class PinLimits(NamedTuple):
    """How many pins an owner may have, and for how many seconds: unread, and in total."""

    pins: int
    lease: float
    lifetime: float

    @classmethod
    def of(cls, config: BrokerConfig) -> PinLimits:
        """The limits in the settings."""
        return cls(
            config.snapshot_pins_max,
            config.snapshot_pin_lease_ms / 1000,
            config.snapshot_pin_max_ms / 1000,
        )


async def pin(
    state: BrokerState,
    data: Path,
    *,
    local: bool,
    owner: NodeId = "",
    org: int = WHOLE_LOG,
) -> str:
    """Take a cut and hold its files; returns the pin's name. See `take_cut`.

    Records that another system stores are copied, up to their end at the cut: see `Copies`.

    Raises:
        TooManyPinsError: the owner has the maximum number of pins.
        OSError: the files cannot be linked to, or the log has failed.
    """
    limits = PinLimits.of(state.configs.broker)
    prefix = _LOCAL if local else _prefix(owner)
    infix = f"{org}-" if prefix not in (_LOCAL, _REMOTE) else ""
    name = f"{prefix}{infix}{os.urandom(8).hex()}"
    await asyncio.to_thread(_check_room, data, prefix, limits)  # before the cost of the cut

    def hold(cut: Cut) -> None:
        _check_room(data, prefix, limits)
        _link_files(data, name, cut)

    copies = await Copies.of(state, org)
    await copies.ask()
    await take_cut(state, org, hold)
    if copies.needed:
        try:
            await copies.add(folder_of(data, name))
        except BaseException:
            await asyncio.to_thread(unpin, data, name)
            raise
    return name


def _prefix(owner: NodeId) -> str:
    return f"{_REMOTE}{owner}-" if owner else _REMOTE


def owner_of(name: str) -> tuple[NodeId, int] | None:
    """The node that owns a remote pin, and its org; None for other names.

    The owner of an older version's pin is empty.
    """
    found = _NAME.fullmatch(name)
    return None if found is None else (found[1] or "", int(found[2] or WHOLE_LOG))


def _check_room(data: Path, prefix: str, limits: PinLimits) -> None:
    """Raise TooManyPinsError if the owner with this prefix may have no more pins.

    A local pin that no process holds does not count: a killed command leaves one behind briefly.
    """
    remove_ended_pins(data, limits)
    if not (data / PINS).is_dir():
        return
    owned = [folder for folder in (data / PINS).iterdir() if folder.name.startswith(prefix)]
    if sum(prefix != _LOCAL or _is_held(folder) for folder in owned) >= limits.pins:
        raise TooManyPinsError(f"there are {limits.pins} pins (snapshot.pins.max)")


# --- files ------------------------------------------------------------------------------------


def _link_files(data: Path, name: str, cut: Cut) -> None:
    folder = folder_of(data, name)
    file_modes.make_folders(folder, exist_ok=False)
    try:
        for segment in cut.segments:
            for file in (log_name(segment.number), index_name(segment.number)):
                os.link(data / "wal" / file, folder / file)
            with suppress(FileNotFoundError):
                os.link(data / ZONES / zones_name(segment), folder / zones_name(segment))
        with file_modes.create_file(folder / PIN) as out:
            out.write(encode_cut(cut).encode())
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def folder_of(data: Path, name: str) -> Path:
    """The folder of a pin's files."""
    return data / PINS / name


def encoded_cut(data: Path, name: str) -> bytes:
    """The cut that a pin holds, for `decode_cut`. Raises OSError: the pin does not exist."""
    return (folder_of(data, name) / PIN).read_bytes()


def pinned_cut(data: Path, name: str) -> Cut:
    """The cut that a pin holds.

    Raises:
        OSError: the pin does not exist, or not any more.
        Malformed: it was made by another version.
    """
    return decode_cut(encoded_cut(data, name))


@contextmanager
def held(data: Path, name: str) -> Generator[Path]:
    """Hold a local pin, and remove it at the end; yields its folder.

    Raises:
        OSError: the pin does not exist, or not any more.
    """
    folder = folder_of(data, name)
    fd = os.open(folder / PIN, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
        yield folder
    finally:
        unpin(data, name)
        os.close(fd)


def unpin(data: Path, name: str) -> None:
    """Remove a pin: its files are freed unless others need them."""
    shutil.rmtree(folder_of(data, name), ignore_errors=True)


def renew(data: Path, name: str, limits: PinLimits) -> None:
    """Start the lease of a remote pin again.

    Raises:
        FileNotFoundError: the pin has ended.
        OSError: it cannot be renewed.
    """
    folder = folder_of(data, name)
    if not _is_needed(folder, limits):
        raise FileNotFoundError(f"the pin {name} has ended")
    os.utime(folder / PIN)


def remove_ended_pins(data: Path, limits: PinLimits) -> None:
    """Remove the pins that have ended."""
    if not (data / PINS).is_dir():
        return
    for folder in (data / PINS).iterdir():
        if not _is_needed(folder, limits):
            log.info("removing the pin %s, which has ended", folder.name)
            shutil.rmtree(folder, ignore_errors=True)


def _is_needed(folder: Path, limits: PinLimits) -> bool:
    if _age(folder) >= limits.lifetime:  # the folder does not change once the pin is made
        return False
    if not (folder / PIN).exists():
        return _age(folder) < _GRACE_SECONDS  # being made, or abandoned
    if not folder.name.startswith(_LOCAL):
        return _age(folder / PIN) < limits.lease
    return _is_held(folder) or _age(folder / PIN) < _GRACE_SECONDS


def _is_held(folder: Path) -> bool:
    """Whether a process has locked this local pin."""
    try:
        fd = os.open(folder / PIN, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _age(path: Path) -> float:
    try:
        return clock.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
