"""The outcome of an append, and the callback that applies it."""

from __future__ import annotations

from collections.abc import Callable

from quafka_broker.partitions.errors import StorageError

Outcome = list[int] | StorageError
"""The offset of each batch of an append, or the reason why it is not in the log or is in doubt."""

Settle = Callable[[Outcome], None]
"""Applies the outcome of an append to its caller's state."""
