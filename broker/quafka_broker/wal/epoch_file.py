"""The leader epoch of a log, durable before anybody is told of it, and how its last writer ended.

File `leader-epoch`, 24 bytes, integers big-endian:

     0   8 magic b"QUAFKEPO"
     8   4 version, 1
    12   4 leader epoch
    16   4 last writer, see `LastWriter`
    20   4 CRC-32C of bytes 0-19

A new epoch begins at a start that may have lost records which were acknowledged, or shown to
consumers: their offsets will be given to other records (docs/adr/0034). The file is written anew,
under a temporary name, whenever one of its two facts changes.
"""

from __future__ import annotations

import errno
import logging
import struct
from enum import IntEnum
from typing import NamedTuple

from quafka_broker.wal.disk import TEMPORARY, Disk
from quafka_broker.wal.reserve import Reserve
from quafka_proto.records import crc32c

log = logging.getLogger("quafka.broker.recovery")

NAME = "leader-epoch"
SKIPPED = 1_000
"""How far to go on where epochs may have been used that nothing here knows of."""
_VERSION = 1
_MAGIC = b"QUAFKEPO"
_FACTS = struct.Struct(">8sIiI")
_CRC = struct.Struct(">I")


class LastWriter(IntEnum):
    """What may be missing from a log, for all that its last writer has said."""

    SAFE = 0
    """Nothing: it acknowledged what was durable, or was closed and had synced everything."""
    UNSYNCED = 1
    """It acknowledges before it syncs, and was not closed."""
    LOST = 2
    """Records were lost, and that was settled."""
    RESTORED = 3
    """This is a copy: the log may have gone on elsewhere, records and epochs."""


class Saved(NamedTuple):
    """What the file says."""

    epoch: int
    last_writer: LastWriter


class Evidence(NamedTuple):
    """What else a start has found.

    Attributes:
        epoch: the greatest in the index and the checkpoint.
        known: whether the checkpoint knows of epochs: then there was a file.
        empty: no record was ever in the log.
        damaged: there is damage of which it is not certain whose records were in it.
        torn: unfinished writes were cut off.
    """

    epoch: int = 0
    known: bool = False
    empty: bool = False
    damaged: bool = False
    torn: bool = False


def epoch_of_start(saved: Saved | None, found: Evidence, *, syncs_first: bool) -> int:
    """The epoch that a start begins or goes on with.

    Args:
        saved: what the file says; None where there is none.
        syncs_first: whether this writer acknowledges only what is durable. A log without the file
            was written by a version without epochs, most likely under the same setting.
    """
    if saved is None:
        if found.known or found.epoch:
            return found.epoch + SKIPPED
        return int(not found.empty and (not syncs_first or found.damaged or found.torn))
    known = max(saved.epoch, found.epoch)
    if saved.last_writer == LastWriter.RESTORED or saved.epoch < found.epoch:
        return known + SKIPPED
    return known + (saved.last_writer != LastWriter.SAFE or found.damaged)


def load(disk: Disk) -> Saved | None:
    """What the file says; None where there is none. A damaged one says that nothing is certain.

    Raises:
        OSError: it cannot be read.
    """
    if NAME not in disk.names():
        return None
    file = disk.open(NAME)
    try:
        data = file.read(0, _FACTS.size + _CRC.size + 1)
    finally:
        file.close()
    facts, crc = data[: _FACTS.size], data[_FACTS.size :]
    if crc == _CRC.pack(crc32c(facts)):
        magic, version, epoch, last_writer = _FACTS.unpack(facts)
        if (magic, version) == (_MAGIC, _VERSION) and last_writer in list(LastWriter):
            return Saved(epoch, LastWriter(last_writer))
    log.warning("%s is damaged: a new leader epoch begins", NAME)
    return Saved(-1, LastWriter.RESTORED)


def save(disk: Disk, facts: Saved) -> None:
    """Replace the file, durably.

    Raises:
        OSError: the old one is still there.
    """
    body = _FACTS.pack(_MAGIC, _VERSION, *facts)
    name = NAME + TEMPORARY
    if name in disk.names():
        disk.remove(name)
    file = disk.create(name)
    try:
        file.append([body + _CRC.pack(crc32c(body))])
        file.sync()
    except OSError:
        disk.remove(name)
        raise
    finally:
        file.close()
    disk.rename(name, NAME)
    disk.sync_names()


def require_new_epoch(disk: Disk, *, restored: bool) -> None:
    """The next start on this folder begins a new epoch. Blocks; for a log that nobody has open.

    Args:
        restored: this log is a copy, as one made from a snapshot: epochs above its own may have
            been told to clients. Else records of it were given up.

    Raises:
        OSError: that could not be made durable.
    """
    saved = load(disk)
    reason = LastWriter.RESTORED if restored else LastWriter.LOST
    if saved is None or saved.last_writer < reason:
        save(disk, Saved(saved.epoch if saved else 0, reason))


class EpochFile:
    """The file while a writer has the log open."""

    def __init__(self, disk: Disk, reserve: Reserve, *, syncs_first: bool) -> None:
        self._disk = disk
        self._reserve = reserve
        self._syncs_first = syncs_first
        self._saved: Saved | None = None
        self.began_new = False
        """Whether this start has begun an epoch, above that of the last writer."""

    def begin(self, found: Evidence) -> int:
        """The epoch that counts from now on; on return it is durable. Blocks.

        Raises:
            OSError: it could not be made so.
        """
        saved = load(self._disk)
        epoch = epoch_of_start(saved, found, syncs_first=self._syncs_first)
        self.began_new = epoch > found.epoch and (saved is None or epoch > saved.epoch)
        if self.began_new:
            log.warning(
                "leader epoch %d begins: acknowledged records may have been lost before this start",
                epoch,
            )
        state = LastWriter.SAFE if self._syncs_first else LastWriter.UNSYNCED
        self._save(saved, Saved(epoch, state))
        return epoch

    def gave_up_records(self) -> None:
        """Records of this log are lost for good. Raises OSError."""
        assert self._saved is not None, "not begun"
        self._save(self._saved, self._saved._replace(last_writer=LastWriter.LOST))

    def closed(self) -> None:
        """Everything is durable, and nothing more will be written. Raises OSError."""
        if self._saved is not None and self._saved.last_writer == LastWriter.UNSYNCED:
            self._save(self._saved, self._saved._replace(last_writer=LastWriter.SAFE))

    def _save(self, before: Saved | None, facts: Saved) -> None:
        if facts != before:
            try:
                save(self._disk, facts)
            except OSError as e:
                if e.errno != errno.ENOSPC or not self._reserve.release():
                    raise
                save(self._disk, facts)
        self._saved = facts
