"""Damaged batches: what a reader reports, and the error that stops it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class BatchDamage:
    """A batch that cannot be read."""

    topic: str
    partition: int
    offset: int
    reason: str

    def __str__(self) -> str:
        return (
            f"topic {self.topic}, partition {self.partition}, offset {self.offset}: {self.reason}"
        )


class CorruptBatchError(Exception):
    """A batch is damaged, and the mode is FAILFAST."""

    def __init__(self, damages: Sequence[BatchDamage]) -> None:
        super().__init__(
            f"{len(damages)} damaged record batch{'es' if len(damages) > 1 else ''}: "
            + "; ".join(map(str, damages[:10]))
            + ". With the option mode = PERMISSIVE they are left out."
        )
        self.damages = damages
