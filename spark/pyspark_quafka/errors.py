"""What a reader is told; each says what to do about it."""


class QuafkaError(Exception):
    """Something that the reader of a snapshot is told."""


class QuafkaOptionError(QuafkaError, ValueError):
    """An option that is not known, or a value that is not allowed."""


class SnapshotNotFoundError(QuafkaError):
    """There is no such snapshot, or none at all."""


class DataLossError(QuafkaError):
    """Offsets that were asked for are not there (`failOnDataLoss`)."""
