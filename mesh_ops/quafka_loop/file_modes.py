"""The modes of new files and folders: what a program keeps is for its user and its group alone.

Files with records, and those that tell what is in them, are made here. The umask of the process may
take away more.

What root makes belongs to the owner and the group of the folder that it is in: a broker that runs
as the owner of its data folder must be able to open what a command of root has written there.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO, TextIO

FILE_MODE = 0o640
FOLDER_MODE = 0o750


def open_descriptor(path: str | Path, flags: int, mode: int = FILE_MODE) -> int:
    """Open a file like `os.open`; also an `opener`. A file that this creates has the mode."""
    flags |= os.O_CLOEXEC
    if not flags & os.O_CREAT or not _is_anothers_folder(path):
        return os.open(path, flags, mode)
    with _folder_of(path) as (folder, name):
        try:
            fd = os.open(name, flags | os.O_EXCL, mode, dir_fd=folder)
        except FileExistsError:
            if flags & os.O_EXCL:
                raise
            return os.open(name, flags, mode, dir_fd=folder)
        _give(fd, folder)
        return fd


def create_file(path: Path) -> BinaryIO:
    """Create a file and open it for writing. Raises FileExistsError."""
    return open(path, "xb", opener=open_descriptor)


def rewrite_file(path: Path) -> BinaryIO:
    """Open a file for writing, and create or empty it."""
    return open(path, "wb", opener=open_descriptor)


def rewrite_text(path: Path) -> TextIO:
    """As `rewrite_file`, for text."""
    return open(path, "w", encoding="utf-8", opener=open_descriptor)


def make_folder(folder: Path, *, exist_ok: bool = False) -> None:
    """Create a folder. Raises FileExistsError, unless `exist_ok`."""
    try:
        _make_folder(folder)
    except FileExistsError:
        if not exist_ok or not folder.is_dir():
            raise


def make_folders(folder: Path, *, exist_ok: bool = True) -> None:
    """Create a folder and all missing ones above it. Raises FileExistsError, unless `exist_ok`."""
    try:
        make_folder(folder, exist_ok=exist_ok)
    except FileNotFoundError:
        if folder.parent == folder:
            raise
        make_folders(folder.parent)
        make_folder(folder, exist_ok=exist_ok)


def _make_folder(folder: Path) -> None:
    if not _is_anothers_folder(folder):
        folder.mkdir(FOLDER_MODE)
        return
    with _folder_of(folder) as (parent, name):
        os.mkdir(name, FOLDER_MODE, dir_fd=parent)
        fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
        try:
            _give(fd, parent)
        finally:
            os.close(fd)


def _is_anothers_folder(path: str | Path) -> bool:
    """Whether this process is root's, and the folder of `path` is not."""
    if os.geteuid():
        return False
    try:
        return os.stat(os.path.dirname(path) or os.curdir).st_uid != 0  # noqa: PTH116, PTH120
    except OSError:
        return False  # who opens the file gets the error


@contextlib.contextmanager
def _folder_of(path: str | Path) -> Generator[tuple[int, str]]:
    """A descriptor of the folder of `path`, and the name in it.

    The owner of the folder may move it or put a link in its place at any moment. With a descriptor,
    the folder whose owner a new file gets is the one that it is made in.
    """
    folder, name = os.path.split(path)
    try:
        fd = os.open(folder or os.curdir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield fd, name
        finally:
            os.close(fd)
    except OSError as e:
        e.filename = str(path)
        raise


def _give(fd: int, folder: int) -> None:
    """Give a new file or folder the owner of its folder, if the file system has owners."""
    owner = os.fstat(folder)
    with contextlib.suppress(OSError):
        os.fchown(fd, owner.st_uid, owner.st_gid)


def open_to_others(path: Path, mode: int) -> bool:
    """Whether the mode of a file with a secret lets other users read it.

    systemd keeps a unit's credentials in a folder that only the unit's user can enter. It grants
    access to that user by ACLs, whose mask is shown as the rights of the group (mode 0440).
    """
    others = stat.S_IMODE(mode) & (stat.S_IRWXG | stat.S_IRWXO)
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    if folder and path.absolute().is_relative_to(folder):
        others &= ~stat.S_IRGRP
    return bool(others)
