"""Views, which Spark reads together with the chain of a shard in an object store (`chain_format`).

    views/<shard>/<epoch>-<number>  a view: JSON, never changed; the manifest names the newest
    zones/<shard>/<name>            the zones of the segment with the log file files/<shard>/<name>

A view is the manifest of a snapshot (`snapshot_format`) with a piece for each segment that is an
object, and for each part of one: nothing is copied. All other records, and those that were added
since, are in the chain from the object `chain_from` on; records that pieces have are skipped there.

The topics, log starts and transactions are those at the view's cut. A record in the chain may
belong to a topic or a partition that is missing in the view; the next view has it.

A reader refuses unknown versions, and ignores unknown fields. `crc` is the CRC-32C of all other
fields; views of earlier versions lack it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, cast

from quafka_proto.chain_format import files_folder, part_of
from quafka_proto.errors import Malformed
from quafka_proto.records import crc32c
from quafka_proto.snapshot_format import (
    SegmentPiece,
    SnapshotManifest,
    decode_manifest,
    encode_manifest,
)

FORMAT, VERSION = "quafka-view", 1
WHOLE = 1 << 62
"""A position beyond the end of every segment."""
_WRITER = len("-000000000000-0123456789abcdef")


@dataclass(frozen=True, slots=True)
class View:
    """A view of one shard. `manifest`: its pieces have the paths of objects below the prefix."""

    shard: int
    chain_from: int
    manifest: SnapshotManifest

    def covered(self) -> dict[int, int]:
        """For each segment with pieces, the position from which the chain has more."""
        found: dict[int, int] = {}
        for piece in self.manifest.pieces:
            end = piece.position + piece.length if _is_part(piece) else WHOLE
            found[piece.number] = max(end, found.get(piece.number, 0))
        return found


def _is_part(piece: SegmentPiece) -> bool:
    """Whether a piece is a part of a then unfinished segment, by the name of its object."""
    return part_of(piece.log.rpartition("/")[2][:-_WRITER]) is not None


def views_folder(shard: int) -> str:
    """The folder of a shard's views."""
    return f"views/{shard:04d}"


def view_path(shard: int, epoch: int, number: int) -> str:
    """The path of a view. Paths sort in the order in which views were written."""
    return f"{views_folder(shard)}/{epoch:012d}-{number:012d}"


def zones_folder(shard: int) -> str:
    """The folder of the zones of a shard's segments."""
    return f"zones/{shard:04d}"


def zones_path(shard: int, log: str) -> str:
    """The path of the zones of a segment, by that of its log file."""
    return f"{zones_folder(shard)}/{log.removeprefix(files_folder(shard) + '/')}"


def encode_view(view: View) -> bytes:
    """The view as JSON."""
    head = {"format": FORMAT, "version": VERSION, "shard": view.shard, "from": view.chain_from}
    snapshot = encode_manifest(view.manifest)
    crc = _crc_of(view.shard, view.chain_from, snapshot)
    values = {**head, "crc": crc, "snapshot": snapshot.decode()}
    return json.dumps(values, separators=(",", ":")).encode()


def decode_view(data: bytes, shard: int) -> View:
    """Read the view of a shard.

    Raises:
        Malformed: not a view, of another shard, or of an unknown version.
    """
    try:
        found: Any = json.loads(data)
    except (ValueError, RecursionError) as e:
        raise Malformed("the view is not JSON") from e
    values = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    if values.get("format") != FORMAT:
        raise Malformed(f'the view lacks "format": "{FORMAT}"')
    if values.get("version") != VERSION:
        raise Malformed(f"the view has version {values.get('version')}; known is {VERSION}")
    start, snapshot = values.get("from"), values.get("snapshot")
    if type(start) is not int or start < 0 or not isinstance(snapshot, str):
        raise Malformed("the view lacks the beginning of the chain, or the snapshot")
    if values.get("shard") != shard:
        raise Malformed(f"it is the view of shard {values.get('shard')}")
    try:
        manifest = snapshot.encode()
    except UnicodeEncodeError as e:
        raise Malformed("the snapshot of the view is not UTF-8") from e
    if values.get("crc") not in (None, _crc_of(shard, start, manifest)):
        raise Malformed("the view does not match its CRC")
    return View(shard, start, decode_manifest(manifest))


def _crc_of(shard: int, chain_from: int, snapshot: bytes) -> int:
    return crc32c(b"%d %d %d " % (VERSION, shard, chain_from) + snapshot)
