"""Log folders that a broker serves, with what Apache Kafka never writes."""

from __future__ import annotations

import os
import random
import struct
import time
from pathlib import Path

from quafka_proto.kafka_log_format import encode_producer_entries
from quafka_proto.schema.fetch import FetchResponse, PartitionData
from quafka_proto.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.hostile.arena import Arena
from tests.hostile.catalogue import attack
from tests.support.fetch_calls import part, request_of
from tests.support.kafka_folder import KafkaFolder, kafka_batch
from tests.support.raw_client import RawClient

_FOLDER = "kafka"
_ADOPT = ("--adopt", f"{{folder}}/{_FOLDER}")
_FIRST = "0" * 20
_ROWS = 1_000_000
_BATCHES = 10_000
_GARBAGE = (
    "fifo", "loop", "device", "noise", "lengths", "offsets", "index", "times", "aborted",
    "snapshot", "epochs", "names", "tiny",
)  # fmt: skip
_SOUND = "sound"


def _prepare(folder: Path) -> None:
    kafka = KafkaFolder(folder / _FOLDER)
    for topic in (_SOUND, *_GARBAGE):
        kafka.append(topic, 0, *(kafka_batch(n, b"%d" % n) for n in range(3)))
        kafka.name(topic, topic.encode().ljust(16, b"-"))


@attack("Kafka's folders are filled with noise, huge indexes and pipes while they are read", "",
        of_clients=False, part_of_tests=True, broker=_ADOPT, prepare=_prepare)  # fmt: skip
def folders(arena: Arena) -> None:
    root = arena.folder / _FOLDER
    if not (root / f"{_SOUND}-0.00-delete").exists():  # it may be played again
        with arena.connect() as client:
            for topic in _GARBAGE[::2]:
                _await_bounds(client, topic)
        _spoil(root)
    with arena.connect() as client:
        for topic in _GARBAGE:
            for isolation in (0, 1):
                for offset in (0, 1, 3, 1 << 40):
                    _fetch(client, topic, offset, isolation)
            for timestamp in (-1, -2, -3, 0, 1_000, 1 << 60):
                _list(client, topic, timestamp)
            _await_bounds(client, _SOUND)


def _spoil(root: Path) -> None:
    chance = random.Random(0)

    def log(topic: str) -> Path:
        return root / f"{topic}-0" / f"{_FIRST}.log"

    for topic in ("fifo", "loop", "device"):
        log(topic).unlink()
    os.mkfifo(log("fifo"))
    log("loop").symlink_to(log("loop"))
    log("device").symlink_to("/dev/zero")
    log("noise").write_bytes(chance.randbytes(8 << 20))
    batch = kafka_batch(3, b"x" * 100)
    with log("lengths").open("ab") as file:
        file.write(batch[:8] + struct.pack(">i", (1 << 31) - 1) + batch[12:])
    os.truncate(log("lengths"), 3 << 30)  # so that the batch is there, of zeros
    with log("offsets").open("ab") as file:
        file.write(kafka_batch((1 << 63) - 2, b"last"))
    tiny = b"".join(kafka_batch(n, b"") for n in range(_BATCHES))
    for topic in ("index", "times", "aborted", "tiny"):
        log(topic).write_bytes(tiny)
    (root / "index-0" / f"{_FIRST}.index").write_bytes(_rows(">II", _ROWS))
    (root / "times-0" / f"{_FIRST}.timeindex").write_bytes(_rows(">qI", _ROWS))
    aborted = struct.Struct(">hqqqq")
    (root / "aborted-0" / f"{_FIRST}.txnindex").write_bytes(
        b"".join(aborted.pack(0, n, 0, n, 0) for n in range(_ROWS // 5))
    )
    (root / "aborted-0" / f"{_BATCHES:020}.snapshot").write_bytes(encode_producer_entries([]))
    (root / "snapshot-0" / f"{_FIRST}.snapshot").write_bytes(chance.randbytes(32 << 20))
    (root / "epochs-0" / "leader-epoch-checkpoint").write_text(
        "\n".join(["0", "200000", *(f"{n} {n}" for n in range(200_000)), ""])
    )
    for number in range(3_000):
        (root / "names-0" / f"{number:020}.snapshot").touch()
    (root / f"{_SOUND}-0.00-delete").mkdir()
    (root / f"{'x' * 200}-99999999999").mkdir()


def _rows(form: str, count: int) -> bytes:
    """Rows that ascend, and name places that are not there."""
    row = struct.Struct(form)
    return b"".join(row.pack(n, 7 * n + 3) for n in range(count))


def _await_bounds(client: RawClient, topic: str) -> None:
    """A fetch that may not wait does not wait for the opening of a partition."""
    give_up = time.monotonic() + 20
    while (found := _fetch(client, topic, 0, 0)).high_watermark != 3:
        assert time.monotonic() < give_up, found


def _fetch(client: RawClient, topic: str, offset: int, isolation: int) -> PartitionData:
    request = request_of(topic, part(0, offset), isolation=isolation, wait=10)
    (found,) = client.call(request, FetchResponse, 12).responses[0].partitions
    return found


def _list(client: RawClient, topic: str, timestamp: int) -> None:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
    client.call(request, ListOffsetsResponse, 7)
