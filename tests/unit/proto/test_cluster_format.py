"""The objects that describe a cluster: read as they are written, and refused when they are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from quafka_objects.cluster import create_cluster, read_brokers, read_cluster, read_state
from quafka_objects.folder import FolderStore
from quafka_proto.chain_format import Owner, ShardManifest, crc_of, encode_manifest, manifest_path
from quafka_proto.cluster_format import (
    ClusterFile,
    Registration,
    broker_path,
    decode_cluster,
    decode_registration,
    encode_cluster,
    encode_registration,
)
from quafka_proto.errors import Malformed

CLUSTER = ClusterFile("an id", 3)
BROKER = Registration("a" * 64, "a:1", 7, 1_000, draining=True)


def test_what_is_written_is_read() -> None:
    assert decode_cluster(encode_cluster(CLUSTER)) == CLUSTER
    by_name = ClusterFile("an id", 3, by_name=True)
    assert decode_cluster(encode_cluster(by_name)) == by_name
    assert decode_registration(encode_registration(BROKER)) == BROKER


def test_a_cluster_by_name_is_for_those_who_know_of_it() -> None:
    """A broker of before would take version 1, and look for groups at the org's home."""
    versions = [
        json.loads(encode_cluster(ClusterFile("an id", 3, by_name=by_name)))["version"]
        for by_name in (False, True)
    ]
    assert versions == [1, 2]


def test_fields_of_later_versions_are_ignored() -> None:
    later = {**_without_crc(encode_registration(BROKER)), "zone": "b"}
    later["crc"] = crc_of(later)
    assert decode_registration(json.dumps(later).encode()) == BROKER


def test_objects_of_earlier_versions_have_no_crc() -> None:
    for data in (encode_registration(BROKER), encode_cluster(CLUSTER)):
        decode = decode_registration if data == encode_registration(BROKER) else decode_cluster
        assert decode(json.dumps(_without_crc(data)).encode()) == decode(data)


@pytest.mark.parametrize("whole", [encode_registration(BROKER), encode_cluster(CLUSTER)])
def test_a_flipped_bit_is_refused_or_changes_nothing(whole: bytes) -> None:
    decode = decode_registration if whole == encode_registration(BROKER) else decode_cluster
    refused = 0
    for bit in range(8 * len(whole)):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        try:
            assert decode(bytes(data)) == decode(whole)
        except Malformed:
            refused += 1
    assert refused > 5 * len(whole)


def _without_crc(data: bytes) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(data)
    del values["crc"]
    return values


@pytest.mark.parametrize(
    "change",
    [{"version": 3}, {"shards": 0}, {"shards": 1_025}, {"shards": "3"}, {"cluster_id": ""}],
)
def test_what_is_not_a_cluster_is_refused(change: dict[str, object]) -> None:
    values = _without_crc(encode_cluster(CLUSTER)) | change
    with pytest.raises(Malformed):
        decode_cluster(json.dumps(values).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'{"version": 1}', b"\xff"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(Malformed):
        decode_registration(data)


def test_the_first_of_two_creators_wins(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    assert read_cluster(store) is None
    assert read_state(store) is None
    assert create_cluster(store, CLUSTER) == CLUSTER
    assert create_cluster(store, ClusterFile("another", 9)) == CLUSTER


def test_shards_without_a_description_are_refused(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put(manifest_path(1), encode_manifest(ShardManifest(1, 4)))
    with pytest.raises(Malformed, match="is missing"):
        create_cluster(store, CLUSTER)


def test_a_state_has_all_shards_and_the_brokers_that_can_be_read(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    create_cluster(store, CLUSTER)
    mine = ShardManifest(1, 4, Owner(BROKER.node, BROKER.address))
    store.put(manifest_path(1), encode_manifest(mine))
    store.put(broker_path(BROKER.node), encode_registration(BROKER))
    store.put(broker_path("b" * 64), encode_registration(BROKER))  # of another node
    store.put(broker_path("c" * 64), b"{}")
    state = read_state(store)
    assert state is not None
    assert [each and each.epoch for each in state.manifests] == [None, 4, None]
    assert state.brokers == read_brokers(store) == [BROKER]
