"""File systems of a test's own: on a loop device, whose power can be cut, or small, in memory."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

import pytest

from tests.support.machine import unable
from tests.support.needs import find

# FS_IOC_SHUTDOWN (ext4) and XFS_IOC_GOINGDOWN are one number: _IOR('X', 125, __u32). With this
# flag the journal is not flushed: all that was not synced is lost.
_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = 2


class CannotMountError(Exception):
    """The machine refused; one sentence says what."""


def mount(*args: str) -> None:
    """Mount.

    Raises:
        CannotMountError: this machine or this user may not.
    """
    if sys.platform != "linux" or os.geteuid():
        raise CannotMountError("mounting takes root on Linux")
    _run("mount", *args)


@contextmanager
def mountable() -> Iterator[None]:
    """Skip a test whose mounts are refused. It is marked to need its `mkfs.<kind>`."""
    try:
        yield
    except CannotMountError as e:
        unable(str(e))


@contextmanager
def tmpfs(mebibytes: int) -> Iterator[Path]:
    """A small file system in memory, mounted at a new folder.

    The folder is not one of pytest's: pytest clears those of earlier runs, and cannot clear a mount
    that a killed run has left.

    Raises:
        CannotMountError: this machine or this user may not.
    """
    with TemporaryDirectory(prefix="quafka-tmpfs-") as folder:
        mount("-t", "tmpfs", "-o", f"size={mebibytes}m", "quafka-test", folder)
        try:
            yield Path(folder)
        finally:
            _run("umount", folder)


class LoopFilesystem:
    """A fresh ext4 or xfs in a file, mounted."""

    def __init__(self, folder: Path, kind: str, mebibytes: int = 400) -> None:
        self.path = folder / kind
        self.path.mkdir()
        self._image = folder / f"{kind}.img"
        self._kind = kind
        with self._image.open("wb") as image:
            image.truncate(mebibytes << 20)

    def __enter__(self) -> Self:
        """Make and mount it.

        Raises:
            CannotMountError: this machine or this user may not.
        """
        _run(f"mkfs.{self._kind}", "-q", str(self._image))
        self._mount()
        return self

    def __exit__(self, *_: object) -> None:
        _run("umount", str(self.path))

    def cut_power(self) -> None:
        """Everything that is not durable is gone; nothing works any more until `restore_power`."""
        fd = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, _SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(fd)

    def restore_power(self) -> None:
        """Mount it again, as after a boot; nobody may have a file of it open."""
        _run("umount", str(self.path))
        self._mount()

    def _mount(self) -> None:
        mount("-o", "loop", str(self._image), str(self.path))


def _run(command: str, *args: str) -> None:
    found = find(command)
    if found is None:
        raise CannotMountError(f"{command} is not installed")
    done = subprocess.run([found, *args], capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotMountError(f"{command} {' '.join(args)}: {done.stderr.strip()}")


FILE_SYSTEMS = {
    kind: pytest.param(kind, marks=pytest.mark.needs(f"mkfs.{kind}")) for kind in ("ext4", "xfs")
}
"""Parameters of tests."""
