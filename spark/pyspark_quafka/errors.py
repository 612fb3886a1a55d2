"""The errors of readers. Each message says what to do."""


class QuafkaError(Exception):
    """A snapshot cannot be read as the options request."""


class QuafkaOptionError(QuafkaError, ValueError):
    """An unknown option, or a value that is not allowed."""


class SnapshotNotFoundError(QuafkaError):
    """The snapshot does not exist, or none does."""


class DataLossError(QuafkaError):
    """Offsets that the options name do not exist (`failOnDataLoss`)."""
