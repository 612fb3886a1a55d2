"""The texts of `quafka wal` for damage, and its exit codes."""

from __future__ import annotations

from typing import Any

from quafka_broker.wal.quarantine import SegmentDamage

EXIT_WHOLE, EXIT_DAMAGED, EXIT_WRONG = 0, 1, 2


def as_json(damage: SegmentDamage) -> dict[str, Any]:
    """A damaged place and the partitions that lost records there, as a JSON object."""
    lost = [
        {
            "virtual_topic": part.partition.key,
            "first_offset": part.first,
            "last_offset": part.end - 1,
        }
        for part in damage.lost
    ]
    return {
        "segment": damage.segment,
        "start": damage.start,
        "end": damage.end,
        "reason": damage.reason,
        "lost": lost,
    }


def sentence(damage: SegmentDamage) -> str:
    """A damaged place and the partitions that lost records there, in one line."""
    lost = ", ".join(
        f"{part.partition.key} offsets {part.first} to {part.end - 1}" for part in damage.lost
    )
    place = f"positions {damage.start} to {damage.end}: " if damage.end else ""
    return f"damaged: {place}{damage.reason}" + (f"; {lost}" if lost else "")
