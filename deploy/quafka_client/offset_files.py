"""Files of committed offsets, as `kafka-consumer-groups --export` writes and reads them (CSV)."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping

from quafka_client.group_offsets import Place

_OF_ONE, _OF_SEVERAL = 3, 4


def written(offsets: Mapping[str, Mapping[Place, int]]) -> str:
    """Lines of topic, partition and offset; of several groups the group is the first column."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    for group, places in offsets.items():
        head = [group] if len(offsets) > 1 else []
        for (topic, partition), offset in sorted(places.items()):
            rows.writerow([*head, topic, partition, offset])
    return out.getvalue()


def read(text: str, group: str) -> dict[Place, int]:
    """The offsets of a group; lines of other groups are ignored.

    Raises:
        ValueError: a line is malformed; the message names it.
    """
    found: dict[Place, int] = {}
    for number, row in enumerate(csv.reader(io.StringIO(text)), 1):
        if not row or (len(row) == _OF_SEVERAL and row[0] != group):
            continue
        try:
            topic, partition, offset = row[-_OF_ONE:]
            place = topic, int(partition)
            found[place] = int(offset)
        except ValueError as e:
            raise ValueError(f"line {number} is not TOPIC,PARTITION,OFFSET") from e
        if len(row) > _OF_SEVERAL or not topic or place[1] < 0 or found[place] < 0:
            raise ValueError(f"line {number} is not TOPIC,PARTITION,OFFSET")
    return found
