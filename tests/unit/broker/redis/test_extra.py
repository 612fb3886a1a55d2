"""A broker without the extra quafka[redis]."""

from __future__ import annotations

import subprocess
import sys

import pytest

from quafka_broker.sources.redis import streams
from quafka_proto.errors import ErrorCode
from tests.unit.broker.redis.tools import create, get, state_with


async def test_a_topic_gets_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_name: str) -> None:
        return None

    async with state_with("127.0.0.1:1") as state:
        source = "redis://127.0.0.1:1/0?stream=s"
        assert (await create(state, source)).error_code == 0
        monkeypatch.setattr(streams, "find_spec", missing)
        refused = await create(state, source, "u")
        assert refused.error_code == ErrorCode.INVALID_CONFIG
        assert "quafka[redis]" in refused.error_message
        for name in list(sys.modules):
            if name == "redis" or name.startswith("redis."):
                monkeypatch.delitem(sys.modules, name)
        for name in ("link", "client"):
            monkeypatch.delitem(sys.modules, f"quafka_broker.sources.redis.{name}", raising=False)
        monkeypatch.setitem(sys.modules, "redis", None)
        assert (await get(state, 0, 300)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        ((_, server),) = state.redis.servers
        assert server.problem == streams.NEEDS_EXTRA


def test_a_broker_needs_no_redis_to_start() -> None:
    code = "import sys; sys.modules['redis'] = None; import quafka_broker.server"
    subprocess.run([sys.executable, "-c", code], check=True)
