"""The modes of new files and folders: what a program keeps is for its user and its group alone.

Files with records, and those that tell what is in them, are made here. The umask of the process may
take away more.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO, TextIO

FILE_MODE = 0o640
FOLDER_MODE = 0o750


def open_descriptor(path: str | Path, flags: int) -> int:
    """Open a file like `os.open`; also an `opener`. A file that this creates has FILE_MODE."""
    return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)


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
    folder.mkdir(FOLDER_MODE, exist_ok=exist_ok)


def make_folders(folder: Path, *, exist_ok: bool = True) -> None:
    """Create a folder and all missing ones above it. Raises FileExistsError, unless `exist_ok`."""
    try:
        make_folder(folder, exist_ok=exist_ok)
    except FileNotFoundError:
        if folder.parent == folder:
            raise
        make_folders(folder.parent)
        make_folder(folder, exist_ok=exist_ok)


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
