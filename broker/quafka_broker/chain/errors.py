"""The errors of a shard in an object store."""


class FencedError(Exception):
    """Another broker has taken over the shard: this one must not acknowledge anything more."""


class StoreUnavailableError(OSError):
    """The store has not answered within the deadline. The request may still take effect."""
