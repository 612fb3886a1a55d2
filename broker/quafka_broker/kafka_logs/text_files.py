"""Kafka's small text files: `meta.properties`, `server.properties`, checkpoints of offsets.

A checkpoint has a version line (0), a line with the number of entries, and a line for each entry.
"""

from __future__ import annotations

import base64
import binascii
import re
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from quafka_broker.kafka_logs.errors import KafkaLogError
from quafka_broker.kafka_logs.files import content_if_there, content_of

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_KEY = re.compile(r"((?:\\.|[^=:\s\\])+)\s*[=:\s]\s*(.*)", re.DOTALL)
_ID_SIZE = 16


class MetaProperties(NamedTuple):
    """The contents of a log folder's `meta.properties`."""

    version: int
    """0: a broker with ZooKeeper; 1: KRaft."""
    cluster_id: str
    """May be empty in version 0."""
    node_id: int
    """-1: missing."""
    directory_id: str
    """Empty before Kafka 3.7."""


class EpochStart(NamedTuple):
    """A leader epoch, and the first offset written in it."""

    epoch: int
    start_offset: int


def read_text(path: Path) -> str:
    """The content of a small file.

    Raises:
        KafkaLogError: it cannot be read, is not UTF-8, or is too large.
    """
    return _decoded(path, content_of(path))


def _text_if_there(path: Path) -> str | None:
    content = content_if_there(path)
    return None if content is None else _decoded(path, content)


def _decoded(path: Path, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as e:
        raise KafkaLogError(path, "not UTF-8 text", e.start) from e


def read_properties(path: Path) -> dict[str, str]:
    """Read a file of Java properties. Raises KafkaLogError."""
    found: dict[str, str] = {}
    joined = re.sub(r"\\\r?\n\s*", "", read_text(path))
    for line in joined.splitlines():
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        match = _KEY.fullmatch(stripped)
        key, value = match.groups() if match else (stripped, "")
        found[_unescaped(key)] = _unescaped(value)
    return found


def _unescaped(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        escape = match[1]
        return chr(int(escape[1:], 16)) if len(escape) > 1 else _ESCAPED.get(escape, escape)

    return _ESCAPE.sub(plain, text)


def read_meta_properties(path: Path) -> MetaProperties:
    """Read `meta.properties`. Raises KafkaLogError."""
    found = read_properties(path)
    version = _number(path, found.get("version", ""))
    if version not in (0, 1):
        raise KafkaLogError(path, f"version {version} is not supported; supported are 0 and 1")
    node = found.get("node.id" if version else "broker.id", "-1")
    return MetaProperties(
        version,
        found.get("cluster.id", ""),
        _number(path, node),
        found.get("directory.id", ""),
    )


def read_topic_id(path: Path) -> bytes | None:
    """Read the topic's id in `partition.metadata`; None without this file (before Kafka 2.8).

    Raises:
        KafkaLogError
    """
    content = _text_if_there(path)
    if content is None:
        return None
    lines = [line.partition(":") for line in content.splitlines()]
    text = next((value.strip() for name, _, value in lines if name.strip() == "topic_id"), "")
    try:
        found = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError) as e:
        raise KafkaLogError(path, "no topic id") from e
    if len(found) != _ID_SIZE:
        raise KafkaLogError(path, f"a topic id of {len(found)} bytes")
    return found


def read_leader_epochs(path: Path) -> tuple[EpochStart, ...]:
    """Read `leader-epoch-checkpoint`; empty if there is no such file.

    Raises:
        KafkaLogError: also if epochs or offsets do not ascend.
    """
    epochs = tuple(EpochStart(*_numbers(path, words, 2)) for words in _entries(path))
    if sorted(epochs) != list(epochs) or any(
        later.start_offset < earlier.start_offset or later.epoch == earlier.epoch
        for earlier, later in pairwise(epochs)
    ):
        raise KafkaLogError(path, "the epochs do not ascend")
    return epochs


def read_offset_checkpoint(path: Path) -> dict[tuple[str, int], int]:
    """Read an offset for each (topic, partition), as in `log-start-offset-checkpoint`.

    Empty if there is no such file. Raises KafkaLogError.
    """
    found: dict[tuple[str, int], int] = {}
    for words in _entries(path):
        partition, offset = _numbers(path, words[1:], 2)
        found[words[0], partition] = offset
    return found


def _entries(path: Path) -> list[list[str]]:
    text = _text_if_there(path)
    if not text:
        return []  # no such file, or Kafka has created it but written nothing yet
    lines = text.split("\n")
    version, count = _number(path, lines[0]), _number(path, lines[1] if len(lines) > 1 else "")
    if version != 0:
        raise KafkaLogError(path, f"version {version} is not supported; supported is 0")
    entries = [line.split() for line in lines[2:] if line.strip()]
    if len(entries) != count:
        raise KafkaLogError(path, f"{len(entries)} entries instead of {count}")
    return entries


def _numbers(path: Path, words: list[str], count: int) -> list[int]:
    if len(words) != count:
        raise KafkaLogError(path, f"an entry with the fields {words!r}")
    return [_number(path, word) for word in words]


def _number(path: Path, text: str) -> int:
    try:
        number = int(text)
    except ValueError as e:
        raise KafkaLogError(path, f"{text[:40]!r} is not a number") from e
    if not -(1 << 63) <= number < 1 << 63:
        raise KafkaLogError(path, f"{number} exceeds 64 bits")
    return number
