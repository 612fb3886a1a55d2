"""Errors that end a log: contradictions on disk, and a failed fsync."""

from __future__ import annotations


class DamagedLogError(Exception):
    """The log contradicts itself, or is of a later version. The message gives the place."""


class SyncError(OSError):
    """An fsync failed. The log takes no more writes."""
