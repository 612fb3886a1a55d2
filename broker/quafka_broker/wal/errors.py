"""What can be wrong with the log."""

from __future__ import annotations


class StorageError(Exception):
    """The log cannot take the records, and has none of them; or cannot give them.

    Kafka's KAFKA_STORAGE_ERROR.
    """


class InDoubtError(StorageError):
    """The batches may be in the log or not: only the next start tells.

    Kafka's NOT_ENOUGH_REPLICAS_AFTER_APPEND: clients send the same batches again.
    """


class CorruptError(StorageError):
    """The record at the offset is lost to damage (CORRUPT_MESSAGE)."""


class DamagedLogError(Exception):
    """The log contradicts itself, so that nothing can be said of it. The message says where."""


class SyncError(OSError):
    """An fsync failed: the log is over."""
