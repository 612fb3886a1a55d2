"""The objects that describe a cluster in an object store: JSON, version 1 or 2.

    cluster              id and number of shards; created once, never changed
    brokers/<node id>    a living broker; rewritten every few seconds, deleted at its end

In a cluster of version 2, groups and transactional ids have shards by their names: earlier readers
would look for them at the wrong shards. Unknown fields are ignored. `crc` is the CRC of all other
fields (`chain_format.crc_of`); objects of earlier versions lack it. The manifests, which name the
owners, are in `chain_format`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar, cast

from quafka_proto.chain_format import BROKERS, crc_of
from quafka_proto.cluster_limits import MOST_SHARDS
from quafka_proto.errors import Malformed

VERSION, VERSION_BY_NAME = 1, 2

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """The object `cluster`.

    Attributes:
        shards: the number of shards.
        by_name: groups and transactional ids have shards by their names, like topics; otherwise all
            of an org's are at one shard, its home.
    """

    cluster_id: str
    shards: int
    by_name: bool = False


@dataclass(frozen=True, slots=True)
class Registration:
    """An object `brokers/<node id>`.

    Attributes:
        node: the broker's node id in the mesh.
        address: host:port of its mesh listener, for gateways and other brokers.
        beat: grows with each write, which shows others that the broker is alive.
        at_ms: the broker's wall clock at the last write (ms since 1970).
        draining: it gives up its shards, and takes none.
    """

    node: str
    address: str
    beat: int
    at_ms: int
    draining: bool = False


def broker_path(node: str) -> str:
    """The path of a broker's registration."""
    return f"{BROKERS}/{node}"


def encode_cluster(cluster: ClusterFile) -> bytes:
    """The cluster as JSON."""
    return _encode(asdict(cluster), VERSION_BY_NAME if cluster.by_name else VERSION)


def decode_cluster(data: bytes) -> ClusterFile:
    """Read the object `cluster`. Raises Malformed."""
    found = _decode(data, ClusterFile, "the cluster's description", VERSION_BY_NAME)
    if not 1 <= found.shards <= MOST_SHARDS or not found.cluster_id:
        raise Malformed(f"a cluster of {found.shards} shards")
    return found


def encode_registration(broker: Registration) -> bytes:
    """The registration as JSON."""
    return _encode(asdict(broker))


def decode_registration(data: bytes) -> Registration:
    """Read a registration. Raises Malformed."""
    return _decode(data, Registration, "a broker's registration")


def _encode(values: dict[str, Any], version: int = VERSION) -> bytes:
    values = {"version": version, **values}
    return json.dumps({**values, "crc": crc_of(values)}, indent=1).encode()


def _decode(data: bytes, kind: type[T], what: str, newest: int = VERSION) -> T:
    try:
        values = json.loads(data)
    except (ValueError, RecursionError) as e:
        raise Malformed(f"{what} is not JSON") from e
    if not isinstance(values, dict):
        raise Malformed(f"{what} is not a JSON object")
    found = cast("dict[str, Any]", values)
    crc = found.pop("crc", None)
    try:
        matches = crc is None or crc == crc_of(found)
    except RecursionError:
        matches = False
    if not matches:
        raise Malformed(f"{what} does not match its CRC")
    if found.get("version") not in range(VERSION, newest + 1):
        raise Malformed(f"{what} has version {found.get('version')}; known is {newest}")
    types = {"str": str, "int": int, "bool": bool}
    known: dict[str, Any] = {}
    for field in fields(cast("Any", kind)):
        if field.name in found:
            if type(found[field.name]) is not types[str(field.type)]:
                raise Malformed(f"{what} has a bad {field.name}")
            known[field.name] = found[field.name]
    try:
        return kind(**known)
    except TypeError as e:
        raise Malformed(f"{what} lacks a field: {e}") from e
