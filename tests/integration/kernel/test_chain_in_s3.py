"""The suite of the chain over S3, as moto has it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from quafka_objects.address import open_store
from quafka_objects.asynchronous import AsyncObjectStore
from tests.support.s3 import S3, s3_server
from tests.unit.broker.chain.test_chain import *  # noqa: F403 - the suite

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with s3_server() as server:
        yield server


@pytest.fixture  # type: ignore[no-redef]  # not the imported one
async def store(
    s3: S3, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[AsyncObjectStore]:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    store = AsyncObjectStore(open_store(f"{s3.url}/{request.node.name}"))
    yield store
    await store.close()
