"""A broker's disk. It can be full, slow or failing; a power cut takes what was not synced."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

from tests.crash.fates import KINDS, Fate, after_power_cut
from tests.crash.recorded_disk import (
    FailedSync,
    Inode,
    Moment,
    RecordedDisk,
    RecordedFile,
    Sync,
    moments,
)
from tests.support.virtual.hub import Hub


class SimulatedDisk(RecordedDisk):
    """The files of one broker's log.

    Attributes:
        is_full: writes that need room fail.
        sync_seconds: what each sync takes.
        failing: the share of syncs that fail.
    """

    def __init__(
        self,
        hub: Hub,
        random: Random,
        note: Callable[..., None],
        begin_with: dict[str, bytes] | None = None,
    ) -> None:
        super().__init__(begin_with)
        self._hub = hub
        self._random = random
        self._note_ = note
        self.is_full = False
        self.sync_seconds = 0.0002
        self.failing = 0.0

    def after_power_cut(self) -> SimulatedDisk:
        """The disk that is found after the power was cut now."""
        last: Moment | None = None
        for moment in moments(self):
            last = moment
        assert last is not None
        fate = Fate(self._random.choice(KINDS), self._random)
        return self._with(after_power_cut(last, fate, self._random).files())

    def after_kill(self) -> SimulatedDisk:
        """The disk that is found after the process was killed: the kernel has all that it wrote."""
        return self._with(self.files())

    def _with(self, files: dict[str, bytes]) -> SimulatedDisk:
        return SimulatedDisk(self._hub, self._random, self._note_, files)

    def allocate(self, name: str, size: int) -> None:
        self._need_room()
        super().allocate(name, size)

    def create(self, name: str) -> RecordedFile:
        self._need_room()
        return super().create(name)

    def write(self, inode: Inode, data: bytes) -> None:
        if self.is_full:
            fits = self._random.randrange(len(data) + 1)
            super().write(inode, data[:fits])
            self._need_room()
        super().write(inode, data)

    def sync(self, inode: Inode) -> None:
        self._note_("sync", inode.number, len(inode.data))
        begun = len(self.operations)
        self._hub.sleep(self.sync_seconds * self._random.uniform(0.5, 2.0))
        if self._random.random() < self.failing:
            self.operations.append(FailedSync(inode.number))
            raise OSError(errno.EIO, "Input/output error")
        self.operations.append(Sync(inode.number, begun))

    def _need_room(self) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
