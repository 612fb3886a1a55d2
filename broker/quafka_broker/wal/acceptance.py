"""Whether the log accepts appends, and why not."""

from __future__ import annotations

import logging

from quafka_broker.partitions.errors import MovedError, StorageError

log = logging.getLogger("quafka.broker.wal")


class Acceptance:
    """Why appends are refused. For one event loop.

    Attributes:
        closed: why no append is accepted now; None while they are.
        refusal: the error of appends that are not accepted.
        refusing: why the last write failed; None if it did not.
        failure: why there are no more writes; None while there may be.
        is_closing: whether `close` was called.
    """

    def __init__(self) -> None:
        self.closed: str | None = None
        self.refusal: type[StorageError] = StorageError
        self.refusing: str | None = None
        self.failure: str | None = None
        self.is_closing = False

    def close(self) -> None:
        """Accept no new appends, because the broker stops."""
        self.is_closing = True
        self.closed = self.closed or "the broker stops"

    def fail(self, error: BaseException) -> None:
        """Accept nothing any more."""
        reason = error.strerror if isinstance(error, OSError) else None
        self.failure = self.closed = f"the log takes no more writes: {reason or error}"
        log.critical("%s; reads go on", self.failure)

    def give_up(self, reason: str) -> bool:
        """Accept nothing any more, because another broker has the log; False if that is known."""
        if self.refusal is MovedError:
            return False
        self.refusal = MovedError
        self.failure = self.closed = reason
        log.critical("%s", reason)
        return True

    def write_failed(self, error: OSError) -> None:
        """Note that a group was not written."""
        reason = f"the log cannot be written: {error.strerror or error}"
        if self.refusing is None:
            log.error("%s", reason)
        self.refusing = reason

    def wrote(self) -> None:
        """Note that a group is in the log."""
        if self.refusing is not None:
            self.refusing = None
            log.warning("the log takes writes again")
