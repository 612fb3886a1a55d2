"""Calls to the store of one kind: whether they fail, and since when. Pure."""

from __future__ import annotations

import logging

log = logging.getLogger("quafka.broker.cluster")

PATIENCE_SECONDS = 8.0
"""How long calls fail before that is a problem of this broker."""


class StoreCalls:
    """What has become of the calls of one kind; `what` names the consequence of a failure."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._why = ""
        self._since = 0.0

    def succeed(self) -> None:
        """A call was answered."""
        self._why = ""

    def fail(self, error: OSError, now: float) -> None:
        """A call failed, or was not answered in time."""
        why = str(error) or "the store does not answer"
        log.warning("%s: %s", self._what, why)
        if not self._why:
            self._since = now
        self._why = why

    def problem(self, now: float) -> str:
        """Why all calls have failed for a while; empty: they have not."""
        if not self._why or now - self._since < PATIENCE_SECONDS:
            return ""
        return f"{self._what}: {self._why}"
