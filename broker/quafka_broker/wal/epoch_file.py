"""The file with the leader epoch, durable before any client sees it, and the last writer's state.

File `leader-epoch`, integers big-endian; 24 bytes, or 32 in an object store:

     0   8 magic b"QUAFKEPO"
     8   4 version: 1; 2: with the takeover
    12   4 leader epoch
    16   4 last writer: a `LastWriter`
    20   8 the takeover that has written it: the epoch in the shard's manifest
    20 or 28   4 CRC-32C of the bytes before it

A new epoch begins at a start that may have lost records that were acknowledged or shown to
consumers: other records will get their offsets (docs/adr/0034). The file is replaced by a rename
whenever the epoch or the last writer's state changes.

In an object store each takeover begins a leader epoch, even if nothing was lost: the last owner may
not know yet that it was replaced, and clients must not mistake its answers for those of the new
owner. The leader epoch follows from the number of takeovers since the file was written, which is
durable in the manifest. So an ordinary takeover does not write the file.
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
"""How many epochs to skip if unknown epochs may have been used."""
_MAGIC = b"QUAFKEPO"
_FACTS = {1: struct.Struct(">8sIiI"), 2: struct.Struct(">8sIiIQ")}
"""The facts of each version, without the CRC."""
_CRC = struct.Struct(">I")


class LastWriter(IntEnum):
    """Which acknowledged records of its last writer a log may lack."""

    SAFE = 0
    """None: the writer acknowledged only durable records, or synced everything and closed."""
    UNSYNCED = 1
    """Recent records: the writer acknowledged before syncing, and was not closed."""
    LOST = 2
    """Records that a repair has given up."""
    RESTORED = 3
    """Records and epochs: this is a copy, and the original may have continued."""


class Saved(NamedTuple):
    """The content of the file.

    Attributes:
        takeover: the takeover that has written it; None: the log is in a local folder.
    """

    epoch: int
    last_writer: LastWriter
    takeover: int | None = None

    def before(self, takeover: int) -> Saved:
        """The state with the highest epoch that any owner before this takeover may have used."""
        if self.takeover is None or self.takeover >= takeover:  # of another log, then
            return self
        return self._replace(epoch=self.epoch + takeover - self.takeover - 1)


class Evidence(NamedTuple):
    """The findings of a start, apart from the file.

    Attributes:
        epoch: the highest epoch in the index and the checkpoint.
        known: the checkpoint has epochs, so the file existed.
        empty: no record was ever in the log.
        damaged: records may be lost to damage, and it is uncertain which.
        torn: unfinished writes were cut off.
    """

    epoch: int = 0
    known: bool = False
    empty: bool = False
    damaged: bool = False
    torn: bool = False


def epoch_of_start(saved: Saved | None, found: Evidence, *, syncs_first: bool) -> int:
    """The epoch that a start begins or continues.

    Args:
        saved: the content of the file; None if it does not exist.
        syncs_first: whether this writer acknowledges only durable records. A log without the file
            was written by a version without epochs, most likely with the same setting.
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
    """Read the file; None if it does not exist. A damaged file is read as RESTORED.

    Raises:
        OSError: the file cannot be read.
    """
    if NAME not in disk.names():
        return None
    file = disk.open(NAME)
    try:
        data = file.read(0, _FACTS[2].size + _CRC.size + 1)
    finally:
        file.close()
    facts, crc = data[: -_CRC.size], data[-_CRC.size :]
    if crc == _CRC.pack(crc32c(facts)):
        for number, layout in _FACTS.items():
            if len(facts) == layout.size:
                magic, version, epoch, last_writer, *takeover = layout.unpack(facts)
                if (magic, version) == (_MAGIC, number) and last_writer in list(LastWriter):
                    return Saved(epoch, LastWriter(last_writer), *takeover)
    log.warning("%s is damaged: a new leader epoch begins", NAME)
    return Saved(-1, LastWriter.RESTORED)


def save(disk: Disk, facts: Saved) -> None:
    """Replace the file, durably.

    Raises:
        OSError: the old file is still in place.
    """
    version = 1 if facts.takeover is None else 2
    body = _FACTS[version].pack(_MAGIC, version, *facts[: version + 1])
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
    """Make the next start on this folder begin a new epoch. Blocks. The log must not be open.

    Args:
        restored: this log is a copy, such as one made from a snapshot: clients may have seen
            epochs above its own. Otherwise records of the log were given up.

    Raises:
        OSError: the change could not be made durable.
    """
    saved = load(disk)
    reason = LastWriter.RESTORED if restored else LastWriter.LOST
    if saved is None or saved.last_writer < reason:
        save(disk, Saved(saved.epoch if saved else 0, reason))


class EpochFile:
    """The file while a writer has the log open."""

    def __init__(
        self, disk: Disk, reserve: Reserve, *, syncs_first: bool, takeover: int | None = None
    ) -> None:
        """`takeover`: the number of this one, in an object store; see the module."""
        self._disk = disk
        self._reserve = reserve
        self._syncs_first = syncs_first
        self._takeover = takeover
        self._saved: Saved | None = None
        self.began_new = False
        """Whether this start has begun an epoch because records may have been lost."""

    def begin(self, found: Evidence) -> int:
        """Determine the current epoch; it is durable on return. Blocks.

        Raises:
            OSError: the epoch could not be made durable.
        """
        saved = before = load(self._disk)
        takeover = self._takeover
        if saved is not None and takeover is not None:
            before = saved.before(takeover)
        epoch = epoch_of_start(before, found, syncs_first=self._syncs_first)
        self.began_new = epoch > found.epoch and (before is None or epoch > before.epoch)
        if self.began_new:
            log.warning(
                "leader epoch %d begins: acknowledged records may have been lost before this start",
                epoch,
            )
        if before is not None and takeover is not None:
            epoch = max(epoch, max(before.epoch, found.epoch) + 1)
        state = LastWriter.SAFE if self._syncs_first else LastWriter.UNSYNCED
        facts = Saved(epoch, state, takeover)
        if saved is not None and _follows(facts, saved):
            facts = saved
        self._save(saved, facts)
        return epoch

    def gave_up_records(self) -> None:
        """Record that records of this log are lost for good. Raises OSError."""
        assert self._saved is not None, "not begun"
        self._save(self._saved, self._saved._replace(last_writer=LastWriter.LOST))

    def closed(self) -> None:
        """Record a clean end: everything is durable. Raises OSError."""
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


def _follows(facts: Saved, saved: Saved) -> bool:
    """Whether the facts of a takeover follow from those that a recent one has saved.

    A reader of the file alone, such as a restore, is never behind by as much as it skips.
    """
    if facts.takeover is None or saved.takeover is None:
        return False
    since = facts.takeover - saved.takeover
    return 0 < since < SKIPPED and facts == (saved.epoch + since, saved.last_writer, facts.takeover)
