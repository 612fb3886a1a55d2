"""`quafka wal dump`: the entries of a log, one a line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from quafka.wal.reports import EXIT_DAMAGED, EXIT_WHOLE
from quafka_broker.journals.internal_topics import INTERNAL_NAMES, SECURITY, SHARES, TRANSACTIONS
from quafka_broker.partitions.partition import PartitionId
from quafka_broker.security import events as security_events
from quafka_broker.shares import events as share_events
from quafka_broker.transactions import events as transaction_events
from quafka_broker.wal.disk import File, RealDisk
from quafka_broker.wal.scan import Bad, Torn
from quafka_broker.wal.segment import log_name
from quafka_broker.wal.verify import entries
from quafka_proto.errors import Malformed
from quafka_proto.log_format import (
    ENTRY_HEADER_SIZE,
    ROW_ABORT,
    ROW_CONTROL,
    ROW_TRANSACTIONAL,
    IndexRow,
    group_size,
)
from quafka_proto.record_codec import iter_records
from quafka_proto.records import BATCH_HEADER_SIZE, DELETE_HORIZON, read_header


def dump(options: argparse.Namespace) -> int:
    """Print the entries; return the exit code."""
    whole = True
    disk = RealDisk(options.data / "wal")
    numbers = sorted(int(name[:-4]) for name in disk.names() if name.endswith(".log"))
    if options.segment is not None:
        numbers = [options.segment]
    for number in numbers:
        try:
            for about, good in _entries(disk, number):
                whole = whole and good
                print(json.dumps(about) if options.format == "json" else _line(about))
        except Malformed as e:
            whole = False
            print(f"quafka: segment {number}: {e}", file=sys.stderr)
    return EXIT_WHOLE if whole else EXIT_DAMAGED


def _line(about: dict[str, Any]) -> str:
    return "  ".join(f"{key} {value}" for key, value in about.items())


def _entries(disk: RealDisk, number: int) -> Iterator[tuple[dict[str, Any], bool]]:
    """Facts about each entry of a segment; with each, whether it is undamaged."""
    file = disk.open(log_name(number))
    try:
        for found in entries(disk, number):
            about: dict[str, Any] = {"segment": number}
            if isinstance(found, IndexRow):
                yield about | _entry(found, file), True
            else:
                kind = "damaged" if isinstance(found, Bad) else "torn"
                about |= {"position": found.start, kind: found.reason}
                yield about, isinstance(found, Torn)
    finally:
        file.close()


def _entry(row: IndexRow, file: File) -> dict[str, Any]:
    partition = PartitionId(row.org_id, row.topic_hash, row.partition, row.generation)
    about: dict[str, Any] = {
        "position": row.position,
        "id": row.global_id,
        "virtual_topic": partition.key,
        "generation": row.generation,
        "offset": row.base_offset,
        "leader_epoch": row.leader_epoch,
        "records": row.record_count,
        "bytes": row.length,
        "max_timestamp": row.max_timestamp,
        "producer_id": row.producer_id,
    }
    header = read_header(file.read(row.position + ENTRY_HEADER_SIZE, BATCH_HEADER_SIZE))
    if header.record_count != row.record_count:
        about["left"] = header.record_count
    if header.attributes & DELETE_HORIZON:
        about["delete_horizon"] = header.base_timestamp
    if row.flags & ROW_TRANSACTIONAL:
        about |= {"producer_epoch": row.producer_epoch, "transaction": _role(row.flags)}
    if partition in INTERNAL_NAMES:
        about["journal"] = INTERNAL_NAMES[partition]
    if group_size(row):
        about["group"] = group_size(row)
    decode = _DECODERS.get(partition)
    if decode is not None:
        about["events"] = _events(file.read(row.position + ENTRY_HEADER_SIZE, row.length), decode)
    return about


def _role(flags: int) -> str:
    """What a transactional batch is in its transaction."""
    if not flags & ROW_CONTROL:
        return "records"
    return "abort" if flags & ROW_ABORT else "commit"


def _events(batch: bytes, decode: Callable[[bytes], Any]) -> list[dict[str, Any]]:
    """The events of a journal in a batch."""
    found: list[dict[str, Any]] = []
    for record in iter_records(batch):
        try:
            event = decode(record.value or b"")
        except (ValueError, LookupError, TypeError) as e:
            found.append({"unreadable": str(e)})
            continue
        values = {name: _plain(value) for name, value in event._asdict().items()}
        found.append({"event": type(event).__name__, **values})
    return found


def _decode_security(value: bytes) -> security_events.Event:
    """An event without keys and secrets: a dump may be shown to others."""
    event = security_events.decode(value)
    if isinstance(event, security_events.UserSet):
        shown = [(mechanism, b"", count, b"", b"") for mechanism, _, count, *_ in event.credentials]
        return event._replace(credentials=shown)
    if isinstance(event, security_events.SecretMade):
        return event._replace(secret=b"")
    return event


_DECODERS: dict[PartitionId, Callable[[bytes], Any]] = {
    TRANSACTIONS: transaction_events.decode, SECURITY: _decode_security,
    SHARES: share_events.decode,
}  # fmt: skip


def _plain(value: Any) -> Any:
    """A value of an event for JSON: bytes as hex."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, (tuple, list)):
        return [_plain(each) for each in cast("Sequence[Any]", value)]
    return value
