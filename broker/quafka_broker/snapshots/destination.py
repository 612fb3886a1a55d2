"""DEST: the local folder or bucket for snapshots."""

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
        """Raise OSError if another command may hold the lock by now."""
        ...


class Destination(ObjectStore):
    """An object store with further methods for making snapshots. All methods block."""

    @abstractmethod
    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write a file of a snapshot, replacing an existing one; durable after `publish`."""

    @abstractmethod
    def link(self, source: Path, path: str) -> bool:
        """Hard-link a file of this machine into DEST; False if that is impossible.

        The link is durable after `publish`.
        """

    @abstractmethod
    def publish(self, path: str, data: bytes) -> None:
        """Create a manifest, durably, after all earlier writes and links.

        Raises:
            ObjectExistsError: another manifest has this path.
        """

    @abstractmethod
    def locked(self) -> AbstractContextManager[Lock]:
        """Hold the lock of DEST. Raises BlockingIOError if another command holds it."""
