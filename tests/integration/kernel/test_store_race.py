"""The race test of stores: those that keep their conditions pass, those that lie do not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from quafka_objects.address import open_store
from quafka_objects.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    TransientStoreError,
    UnsafeStoreError,
)
from quafka_objects.folder import FolderStore
from quafka_objects.race import verify_store
from quafka_objects.retries import RetryPolicy
from quafka_objects.store import Buffer, ETag, ObjectInfo
from tests.support.injected_store import Faults, InjectedStore
from tests.support.s3 import minio_server, versitygw_server


class Overwrites(FolderStore):
    """Takes `If-None-Match: *` and ignores it, as some gateways do."""

    def create(self, path: str, data: Buffer) -> ETag:
        self.put(path, data)
        return self.get(path).etag


class LooksFirst(FolderStore):
    """Looks whether the object is there, and then writes it: right until two do so at once."""

    def create(self, path: str, data: Buffer) -> ETag:
        if self.exists(path):
            return super().create(path, data)
        self.put(path, data)
        return self.get(path).etag


class SwapsAnything(FolderStore):
    """Ignores `If-Match`."""

    def replace(self, path: str, data: Buffer, expected: ETag) -> ETag:
        self.put(path, data)
        return self.get(path).etag


class ListsLate(FolderStore):
    """What has just been written is not in its lists."""

    def list_objects(self, folder: str = "", after: str = "") -> Iterator[ObjectInfo]:
        yield from list(super().list_objects(folder, after))[:-1]


class ReadsLate(FolderStore):
    """What has just been created cannot be read yet."""

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        raise ObjectNotFoundError(path)


class RefusesAll(FolderStore):
    """Every write on a condition is refused."""

    def create(self, path: str, data: Buffer) -> ETag:
        if path.endswith("counter"):
            raise ObjectExistsError(path)
        return super().create(path, data)


def test_a_folder_passes_and_keeps_nothing(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    proof = verify_store(store)
    assert (proof.creations, proof.swaps) == (5, 30)
    assert 0 < proof.median <= proof.slowest <= proof.seconds
    assert list(store.list_objects()) == []


@pytest.mark.needs("versitygw")
def test_versitygw_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with versitygw_server(tmp_path) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        verify_store(open_store(server.url, attempt_seconds=20.0))


@pytest.mark.needs("minio")
def test_minio_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with minio_server(tmp_path) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        verify_store(open_store(server.url, attempt_seconds=20.0))


def test_faults_are_no_lies(tmp_path: Path) -> None:
    """Refusals and lost answers are repeated; a repeated creation meets its own object."""
    store = InjectedStore(FolderStore(tmp_path), Faults(busy=0.05, lost=0.05), seed=7)
    verify_store(store, objects=2, rounds=5)


@pytest.mark.parametrize(
    ("liar", "reason"),
    [
        (Overwrites, "20 of 20 creators"),
        (LooksFirst, "creators of one object were told|has not the bytes"),
        (SwapsAnything, "4 of 4 writers replaced the same version"),
        (ListsLate, "a list lacks objects just written"),
        (ReadsLate, "just written cannot be read"),
        (RefusesAll, "a write without a rival was refused"),
    ],
)
def test_stores_that_lie(liar: type[FolderStore], reason: str, tmp_path: Path) -> None:
    with pytest.raises(UnsafeStoreError, match=reason):
        verify_store(liar(tmp_path), rounds=3)


def test_a_store_that_is_down_is_no_liar(tmp_path: Path) -> None:
    store = InjectedStore(FolderStore(tmp_path))
    store.down = True
    with pytest.raises(TransientStoreError, match="Slow Down"):
        verify_store(store, patience=RetryPolicy(seconds=0.0))
