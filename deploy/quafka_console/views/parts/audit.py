"""The console's audit log: each act that changes something, with its outcome."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from quafka_client.errors import ClientError
from quafka_console.session import ConsoleSession
from quafka_loop import clock

logger = logging.getLogger("quafka.console.audit")
_KEPT = 1_000


@dataclass(frozen=True, slots=True)
class Act:
    """What a user did. `error`: "" if it was done. `at`: seconds since 1970."""

    at: float
    user: str
    act: str
    name: str
    error: str


_acts: deque[Act] = deque(maxlen=_KEPT)


@contextmanager
def audited(session: ConsoleSession, act: str, name: str) -> Generator[None]:
    """Log an act and its outcome; errors pass."""
    error = "interrupted"
    try:
        yield
        error = ""
    except ClientError as e:
        error = str(e)
        raise
    finally:
        _acts.append(Act(clock.time(), session.user, act, name, error))
        logger.info(
            "%s: %s %r: %s", session.user or "anonymous", act, name, error or "done",
        )  # fmt: skip


def acts_of(user: str) -> Sequence[Act]:
    """The last acts of a user since the console's start, the latest first."""
    return [each for each in reversed(_acts) if each.user == user]
