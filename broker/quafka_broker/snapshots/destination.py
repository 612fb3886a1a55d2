"""DEST: the place that snapshots are kept in, a local folder or a bucket."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from quafka_objects.store import ObjectStore

LOCK = "lock"
"""The path of the lock."""


class Lock(Protocol):
    """The lock of a DEST. One command holds it at a time."""

    def check(self) -> None:
        """Raises OSError where another command may hold the lock by now."""
        ...


class Destination(ObjectStore):
    """An object store with what the making of snapshots needs beside. All methods block."""

    @abstractmethod
    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write a file of a snapshot, in place of one that exists; durable after `publish`."""

    @abstractmethod
    def link(self, source: Path, path: str) -> bool:
        """Hard-link a file of this machine into DEST; False where that is not possible.

        The link is durable after `publish`.
        """

    @abstractmethod
    def publish(self, path: str, data: bytes) -> None:
        """Create a manifest, durably, after everything that was written or linked before.

        Raises:
            ObjectExistsError: another manifest has this path.
        """

    @abstractmethod
    def locked(self) -> AbstractContextManager[Lock]:
        """Hold the lock of DEST. BlockingIOError where another command does."""
