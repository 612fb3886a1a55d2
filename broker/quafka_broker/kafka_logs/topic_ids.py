"""The topic ids in partition folders, which Kafka writes once."""

from __future__ import annotations

from pathlib import Path

from quafka_broker.kafka_logs.errors import KafkaLogError
from quafka_broker.kafka_logs.text_files import read_topic_id


class TopicIds:
    """Reads each `partition.metadata` once, while it is the same file."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[tuple[int, int], bytes | None]] = {}

    def of(self, path: Path) -> bytes | None:
        """The topic id in a file; None if there is no such file. Raises KafkaLogError."""
        try:
            found = path.stat()
        except FileNotFoundError:
            return None
        except OSError as e:
            raise KafkaLogError(path, e.strerror or str(e)) from e
        version = found.st_ino, found.st_mtime_ns
        known = self._known.get(path)
        if known is None or known[0] != version:
            known = self._known[path] = version, read_topic_id(path)
        return known[1]
