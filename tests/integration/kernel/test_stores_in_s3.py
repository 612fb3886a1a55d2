"""The suite of object stores over S3, as a real HTTP server has it, and creators that race."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from quafka_loop import threads
from quafka_objects.address import open_store
from quafka_objects.bucket import BucketStore
from quafka_objects.errors import (
    AccessDeniedError,
    ObjectChangedError,
    ObjectExistsError,
    ObjectStoreError,
)
from quafka_objects.race import verify_store
from quafka_objects.store import ObjectStore
from tests.support.s3 import S3, s3_server
from tests.unit.objects.test_stores import *  # noqa: F403 - the suite
from tests.unit.objects.test_stores import CREATORS, paths

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with s3_server() as server:
        yield server


@pytest.fixture(params=["folder", "s3"])  # type: ignore[no-redef]  # not the imported one
def address(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A place of this test's own."""
    if request.param == "folder":
        return str(request.getfixturevalue("tmp_path") / "made" / "store")
    s3: S3 = request.getfixturevalue("s3")
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    return f"{s3.url}/{request.node.name}"


def test_one_of_many_creators_succeeds(store: ObjectStore) -> None:
    def create(number: int) -> int | None:
        try:
            store.create("a/b", b"%d" % number)
        except ObjectExistsError:
            return None
        return number

    with threads.ThreadPoolExecutor(CREATORS) as pool:
        created = [n for n in pool.map(create, range(CREATORS)) if n is not None]
    assert len(created) == 1
    assert store.read("a/b") == b"%d" % created[0]


def test_a_counter_counts_every_swap(store: ObjectStore) -> None:
    store.create("counter", b"0 ")

    def add(_: int) -> None:
        while True:
            found = store.get("counter")
            count = int(found.data.split()[0]) + 1
            try:
                store.replace(
                    "counter", b"%d %s" % (count, os.urandom(8).hex().encode()), found.etag
                )
            except ObjectChangedError:
                continue
            return

    with threads.ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(20)))
    assert int(store.read("counter").split()[0]) == 20


def test_what_a_bucket_refuses(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ObjectStoreError, match="there is no such bucket"):
        paths(open_store("s3://no-such-bucket/lake"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(AccessDeniedError, match=r"a: access is denied \(.*403 Forbidden: \w+\)"):
        open_store(s3.url).read("a")
    with pytest.raises(AccessDeniedError, match="access is denied"):
        paths(open_store(s3.url))


def test_moto_passes_the_race(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    assert verify_store(open_store(f"{s3.url}/race", attempt_seconds=20.0), rounds=10).swaps == 10


def test_options_before_the_environment(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    options = {
        "endpoint": s3.environment["AWS_ENDPOINT_URL"],
        "region": s3.environment["AWS_REGION"],
        "access_key_id": s3.environment["AWS_ACCESS_KEY_ID"],
        "secret_access_key": s3.environment["AWS_SECRET_ACCESS_KEY"],
    }
    store = open_store(s3.url.replace("s3://", "s3a://"), options)
    store.put("options", b"x")
    assert store.exists("options")
    assert isinstance(store, BucketStore)
    assert store.is_remote
