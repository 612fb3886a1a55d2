"""Errors in reading Kafka's folders."""

from __future__ import annotations

from pathlib import Path


class KafkaLogError(Exception):
    """A file is damaged, or of an unsupported kind; the message names the place.

    Attributes:
        path: the file or folder.
        position: where in the file; None: all of it.
    """

    def __init__(self, path: Path, reason: str, position: int | None = None) -> None:
        place = "" if position is None else f", position {position}"
        super().__init__(f"{path}{place}: {reason}")
        self.path = path
        self.position = position


class OffsetOutOfRangeError(Exception):
    """An offset below the log start or above the log end."""
