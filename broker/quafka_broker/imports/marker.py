"""The file `importing` in a data folder, which exists while an import is under way.

{"version": 1, "topics": {"<org> <name>": uuid in hex},
 "offsets": [[org, group, topic, partition, offset, metadata, committed at ms], …]}
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from quafka_broker.imports.errors import ImportRefusedError
from quafka_broker.imports.group_offsets import KeptOffset
from quafka_broker.topics.topic import Topic
from quafka_broker.wal.disk import sync_folder
from quafka_loop import file_modes

_VERSION = 1


class ImportMarker:
    """The topics of an import, with which a repeated import continues.

    Attributes:
        offsets: the groups' offsets in topics that the import replaces.
    """

    def __init__(self, path: Path) -> None:
        """Reads the file, if there is one. Raises ImportRefusedError."""
        self._path = path
        self._topics: dict[str, str] = {}
        self.offsets: list[KeptOffset] = []
        if path.exists():
            self._read()

    def write(self, topics: Iterable[Topic], offsets: Iterable[KeptOffset]) -> None:
        """Add topics and offsets durably, before the topics are created. Raises OSError."""
        self._topics |= {_key(topic): topic.uuid.hex() for topic in topics}
        self.offsets += offsets
        content = {"version": _VERSION, "topics": self._topics, "offsets": self.offsets}
        new = self._path.with_suffix(".new")
        with file_modes.rewrite_text(new) as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        new.rename(self._path)
        sync_folder(self._path.parent)

    def has(self, topic: Topic) -> bool:
        """Whether the topic belongs to this import."""
        return self._topics.get(_key(topic)) == topic.uuid.hex()

    def names(self, org: int) -> list[str]:
        """The names of the topics.

        Raises:
            ImportRefusedError: they belong to another org.
        """
        keys = [key.partition(" ") for key in self._topics]
        other = next((of for of, _, _ in keys if of != str(org)), None)
        if other is not None:
            raise ImportRefusedError(f"an import for org {other} did not finish: repeat it first")
        return [name for _, _, name in keys]

    def _read(self) -> None:
        try:
            content: dict[str, Any] = json.loads(self._path.read_text())
            if content["version"] != _VERSION:
                raise ImportRefusedError(f"{self._path} is from another version of quafka")
            self._topics = dict(content["topics"])
            self.offsets = [KeptOffset(*each) for each in content["offsets"]]
        except (ValueError, TypeError, KeyError) as e:
            raise ImportRefusedError(f"{self._path} is damaged: {e!r}") from e


def _key(topic: Topic) -> str:
    return f"{topic.org} {topic.name}"
