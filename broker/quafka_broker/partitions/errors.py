"""Errors of a partition's records: reading and appending."""

from __future__ import annotations


class OffsetGoneError(Exception):
    """The log start has moved above an offset."""


class StorageError(Exception):
    """The log cannot store the records and has none of them, or cannot return them.

    Kafka's KAFKA_STORAGE_ERROR.
    """


class InDoubtError(StorageError):
    """The batches may or may not be in the log. The next start decides.

    Kafka's NOT_ENOUGH_REPLICAS_AFTER_APPEND: clients send the same batches again.
    """


class MovedError(StorageError):
    """Another broker has the log now; this one has stored none of the records.

    Kafka's NOT_LEADER_OR_FOLLOWER.
    """


class CorruptError(StorageError):
    """The record at the offset is lost to damage (CORRUPT_MESSAGE)."""
