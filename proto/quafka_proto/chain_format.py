"""The objects of a log in an object store. Brokers write them; Spark and tools read them.

Below the prefix of a cluster (`shard`: four decimal digits, `seq`: twelve):

    cluster                         the cluster: JSON, created once
    brokers/<node id>               a living broker: JSON, rewritten every few seconds
    manifest/<shard>                a shard's owner and its parts: JSON, compare and swap
    log/<shard>/<seq>               the chain: one object for each group commit, created if absent
    directory/<shard>/<name>        the files of a shard's folder: one list, never changed
    files/<shard>/<name>            those files: sealed segments, checkpoints; never changed

The manifest's field `crc` is the CRC-32C of the others, as JSON without spaces, sorted by name.

Names of files and of their lists end with the epoch of the writer, twelve digits, and a random
number: `<name>-<epoch>-<16 hex digits>`, so that no two writers write one object. In the number of
a segment's file, bit 63 is set, bit 32 is the segment's kind, and the lowest 32 bits are its salt:
so opening a log reads no file's header. (Bit 63 is clear where the file had no good header.)

The successful creation of a chain object is the commit. An append is acknowledged when its object
and all before it exist. A writer sends the object `seq` only when all up to `seq - WINDOW` exist.

A new owner raises the epoch in the manifest, and creates objects without entries, *fences*, at the
first free sequence number and at the free ones among the `WINDOW - 1` after it: only there can a
late object of an earlier writer appear. Readers ignore an object whose epoch is below that of an
object before it: its writer had been fenced, and has acknowledged nothing of it. They begin at the
manifest's `chain_start`. Objects before it are deleted, but fences never: without them, a writer
that wakes up after years could create an object, and mistake this for a commit.

A chain object, integers big-endian:

    header, 96 bytes
        0   8 magic b"QUAFKCHN"
        8   1 version, 1
        9   1 kind: 0 entries, 1 fence
       10   2 zero
       12   4 shard
       16   8 sequence number
       24   8 epoch of the writer
       32  16 nonce: a random number for each object, the same in each attempt to create it
       48   8 number of the segment that the entries belong to
       56   8 position of the first entry in that segment's log file
       64   8 global message id of the first record
       72   4 number of entries
       76   4 salt of the segment
       80   8 length of the entries in bytes
       88   4 zero
       92   4 CRC-32C of bytes 0-91
    the entries, as in the segment's log file (`log_format`)
    their index rows, as in the segment's index file; positions are those in the log file

A reader refuses a version that it does not know. A change of layout is a new version; readers
continue to read the old ones. Unknown fields of JSON are ignored.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple, cast

from quafka_proto.errors import Malformed
from quafka_proto.layout import Layout
from quafka_proto.log_format import INDEX_ROW_SIZE, FileHeader
from quafka_proto.records import crc32c

VERSION = 1
MAGIC = b"QUAFKCHN"
ENTRIES, FENCE = 0, 1
"""The kinds of chain objects."""
NONCE_SIZE = 16
WINDOW = 16
"""How many objects a writer may have sent while the first of them is not known to exist."""
CLUSTER = "cluster"
BROKERS = "brokers"
FILES = "files"
MANIFESTS = "manifest"

_HEADER = Layout(
    magic="8s",
    version="B",
    kind="B",
    unused="2x",
    shard="I",
    seq="Q",
    epoch="Q",
    nonce="16s",
    segment="Q",
    position="Q",
    first_id="Q",
    entries="I",
    salt="I",
    length="Q",
    unused2="4x",
    crc="I",
)
HEADER_SIZE = _HEADER.size
_FACTS = _HEADER.before("crc")
_CRC = struct.Struct(">I")
_CRC_AT = _HEADER.offset("crc")
_MOST_DIRECTORY = 256 << 20
_SEQ = re.compile(r"\d{12}", re.ASCII)
_WRITTEN = re.compile(r".+-(\d{12})-[0-9a-f]{16}", re.ASCII)


class ChainHeader(NamedTuple):
    """The header of a chain object; see the module. A fence has zeros from `segment` on."""

    kind: int
    shard: int
    seq: int
    epoch: int
    nonce: bytes
    segment: int = 0
    position: int = 0
    first_id: int = 0
    entries: int = 0
    salt: int = 0
    length: int = 0

    @property
    def rows_at(self) -> int:
        """The offset of the index rows in the object."""
        return HEADER_SIZE + self.length

    @property
    def size(self) -> int:
        """Bytes of the whole object."""
        return self.rows_at + INDEX_ROW_SIZE * self.entries

    def offset_of(self, position: int) -> int:
        """The offset in the object of the entry at `position` in the segment's log file."""
        return HEADER_SIZE + position - self.position


def manifest_path(shard: int) -> str:
    """The path of a shard's manifest."""
    return f"{MANIFESTS}/{shard:04d}"


def chain_folder(shard: int) -> str:
    """The folder of a shard's chain."""
    return f"log/{shard:04d}"


def chain_path(shard: int, seq: int) -> str:
    """The path of a chain object. Paths sort like the sequence numbers."""
    return f"{chain_folder(shard)}/{seq:012d}"


def seq_of(path: str) -> int | None:
    """The sequence number in a chain object's path; None for other paths."""
    name = path.rpartition("/")[2]
    return int(name) if _SEQ.fullmatch(name) else None


def files_folder(shard: int) -> str:
    """The folder of a shard's files."""
    return f"{FILES}/{shard:04d}"


def directory_folder(shard: int) -> str:
    """The folder of the lists of a shard's files."""
    return f"directory/{shard:04d}"


def file_path(shard: int, name: str, epoch: int, nonce: int) -> str:
    """The path of a file's object; `nonce` is a random number of 64 bits."""
    return f"{files_folder(shard)}/{name}-{epoch:012d}-{nonce:016x}"


def part_name(name: str, start: int) -> str:
    """The name of a part of a segment's file in the list of files."""
    return f"{name}@{start:016d}"


def part_of(name: str) -> tuple[str, int] | None:
    """The file that a part belongs to, and its position there; None for the name of a file."""
    file, at, start = name.partition("@")
    return (file, int(start)) if at and start.isdecimal() else None


def directory_path(shard: int, epoch: int, nonce: int) -> str:
    """The path of a list of files; `nonce` is a random number of 64 bits."""
    return f"{directory_folder(shard)}/list-{epoch:012d}-{nonce:016x}"


def segment_nonce(nonce: int, header: FileHeader | None) -> int:
    """A random number of 64 bits that includes a segment's file header, for `file_path`."""
    if header is None:
        return nonce & ~(1 << 63)
    return nonce & ~((1 << 33) - 1) | 1 << 63 | header.kind << 32 | header.salt


def header_in_path(path: str) -> FileHeader | None:
    """The header of a segment's file in the path of its object, or None."""
    if epoch_of(path) is None:
        return None
    nonce = int(path[-16:], 16)
    return FileHeader(nonce & 0xFFFFFFFF, nonce >> 32 & 1) if nonce >> 63 else None


def epoch_of(path: str) -> int | None:
    """The epoch of the writer of a file or of a list; None for other paths."""
    found = _WRITTEN.fullmatch(path.rpartition("/")[2])
    return None if found is None else int(found[1])


def encode_header(header: ChainHeader) -> bytes:
    """The header's 96 bytes."""
    kind, *rest = header
    head = _FACTS.pack(MAGIC, VERSION, kind, *rest)
    return head + _CRC.pack(crc32c(head))


def decode_header(data: bytes | memoryview, shard: int, seq: int) -> ChainHeader:
    """Verify the header of the object `seq` of a shard's chain.

    Raises:
        Malformed: cut short, damaged, of another object, or of an unknown kind or version.
    """
    if len(data) < HEADER_SIZE:
        raise Malformed("the header of a chain object is cut short")
    magic, version, *rest = _FACTS.unpack_from(data)
    if magic != MAGIC:
        raise Malformed("it is not a chain object")
    if version != VERSION:
        raise Malformed(f"the chain object has version {version}; known is {VERSION}")
    if _CRC.unpack_from(data, _CRC_AT)[0] != crc32c(data[:_CRC_AT]):
        raise Malformed("the header of a chain object does not match its CRC")
    header = ChainHeader(*rest)
    if header.kind not in (ENTRIES, FENCE):
        raise Malformed(f"chain objects of kind {header.kind} are not known")
    if (header.shard, header.seq) != (shard, seq):
        raise Malformed(f"it is object {header.seq} of shard {header.shard}")
    return header


@dataclass(frozen=True, slots=True)
class Owner:
    """The broker that owns a shard.

    Attributes:
        node: the broker's node id in the mesh.
        address: host:port of its mesh listener, for gateways and other brokers.
    """

    node: str
    address: str


@dataclass(frozen=True, slots=True)
class ShardManifest:
    """The owner of a shard, and the parts of the shard.

    Attributes:
        epoch: raised by each takeover.
        owner: the owner; None if the last one has released the shard.
        lease_until_ms: by the owner's wall clock (ms since 1970). Others may take over later, or at
            once if the owner has released the shard. No write depends on it.
        directory: the path of the list of files; empty: no file yet.
        chain_start: the first chain object that is needed in addition to the files: one that
            readers do not ignore, or the next one to be created.
        tail_start: the first chain object that a new owner reads: earlier entries are in files, or
            in parts of files. A value below `chain_start` does not count.
        view: the path of the view that Spark reads together with the chain: a snapshot's manifest;
            may be empty.
        nonce: a random number for each write, so that the writer recognizes it, and no manifest
            ever has the bytes of an earlier one.
    """

    shard: int
    epoch: int = 0
    owner: Owner | None = None
    lease_until_ms: int = 0
    directory: str = ""
    chain_start: int = 0
    tail_start: int = 0
    view: str = ""
    nonce: str = ""


class StoredFile(NamedTuple):
    """A file of a shard's folder: its name there, and the path and size of its object.

    The list also has the beginnings of active segments, in parts: a part's name has the name of the
    file and the part's position (`part_name`). Parts are only for owners.
    """

    name: str
    path: str
    size: int


def encode_manifest(manifest: ShardManifest) -> bytes:
    """The manifest as JSON."""
    values = {"version": VERSION, **asdict(manifest)}
    return json.dumps({**values, "crc": crc_of(values)}, indent=1).encode()


def decode_manifest(data: bytes, shard: int) -> ShardManifest:
    """Read the manifest of a shard.

    Raises:
        Malformed: not a manifest, of another shard, or of an unknown version.
    """
    found = _json(data, "the manifest")
    crc = found.pop("crc", None)
    try:
        matches = crc == crc_of(found)
    except RecursionError:
        matches = False
    if not matches:
        raise Malformed("the manifest does not match its CRC")
    known = {field.name for field in fields(ShardManifest)}
    values = {name: value for name, value in found.items() if name in known}
    owner = values.get("owner")
    try:
        if owner is not None:
            values["owner"] = Owner(str(owner["node"]), str(owner["address"]))
        manifest = ShardManifest(**values)
    except (TypeError, KeyError) as e:
        raise Malformed(f"the manifest lacks a field: {e}") from e
    for name in ("shard", "epoch", "lease_until_ms", "chain_start", "tail_start"):
        if type(getattr(manifest, name)) is not int:
            raise Malformed(f"the manifest's {name} is not a number")
    for name in ("directory", "view", "nonce"):
        if type(getattr(manifest, name)) is not str:
            raise Malformed(f"the manifest's {name} is not a string")
    if manifest.shard != shard:
        raise Malformed(f"it is the manifest of shard {manifest.shard}")
    return manifest


def crc_of(values: dict[str, Any]) -> int:
    """The CRC-32C of fields in JSON without spaces, sorted by name."""
    return crc32c(json.dumps(values, separators=(",", ":"), sort_keys=True).encode())


def encode_directory(files: Iterable[StoredFile]) -> bytes:
    """The list of files: JSON, compressed by zlib."""
    found = {"version": VERSION, "files": [list(file) for file in files]}
    return zlib.compress(json.dumps(found, separators=(",", ":")).encode(), 1)


def decode_directory(data: bytes) -> list[StoredFile]:
    """Read a list of files.

    Raises:
        Malformed: not a list of files, or of an unknown version.
    """
    unpacking = zlib.decompressobj()
    try:
        text = unpacking.decompress(data, _MOST_DIRECTORY)
    except zlib.error as e:
        raise Malformed("the directory is not compressed by zlib") from e
    if not unpacking.eof:
        raise Malformed("the directory is cut short, or too long")
    found = _json(text, "the directory").get("files")
    if not isinstance(found, list):
        raise Malformed("the directory has no files")
    files: list[StoredFile] = []
    for item in cast("list[Any]", found):
        if not isinstance(item, list) or list(map(type, cast("list[Any]", item))) != [
            str,
            str,
            int,
        ]:
            raise Malformed("the directory has a file without name, path or size")
        files.append(StoredFile(*cast("list[Any]", item)))
    return files


def _json(data: bytes, what: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as e:
        raise Malformed(f"{what} is not JSON") from e
    if not isinstance(found, dict):
        raise Malformed(f"{what} is not a JSON object")
    values = cast("dict[str, Any]", found)
    if values.get("version") != VERSION:
        raise Malformed(f"{what} has version {values.get('version')}; known is {VERSION}")
    return values
