"""The errors of a shard in an object store."""


class FencedError(Exception):
    """Another broker has taken over the shard: this one may acknowledge nothing more."""


class StoreUnavailableError(OSError):
    """The store has not answered within the deadline. What was sent may still take effect."""
