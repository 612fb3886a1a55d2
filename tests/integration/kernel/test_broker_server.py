"""Starting and stopping a broker: the data folder, its lock, and what an operator is told."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from quafka_broker.config.settings import BrokerConfig
from quafka_broker.ops.table import OPS, serve
from quafka_broker.server import Broker, fsync_policy
from quafka_broker.shard import shard
from quafka_broker.shard.shard import Shard
from quafka_broker.wal.disk import RealDisk
from quafka_broker.wal.epoch_file import require_new_epoch
from quafka_broker.wal.fsync import FsyncPolicy
from quafka_broker.wal.log import Log
from quafka_loop import threads
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.errors import OpFailedError
from quafka_mesh_ops.identity import Identity
from quafka_mesh_ops.ops.base import OpCode
from quafka_mesh_ops.ops.records import (
    FetchOp,
    FetchOps,
    FetchOpsResp,
    ProduceOp,
    ProduceOps,
    ProduceOpsResp,
)
from quafka_mesh_ops.ops.topics import CreateTopic, CreateTopicResp
from quafka_mesh_ops.rights import FOR_EVERY_NODE
from quafka_proto.errors import ErrorCode
from quafka_telemetry.startup import StartupError
from quafka_telemetry.tracing import Tracer
from tests.support.prometheus import get
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import batch_of, context, running_state


def config(folder: Path, listen: str = "127.0.0.1:0", allow: tuple[str, ...] = ()) -> BrokerConfig:
    return BrokerConfig(
        data=folder / "data", mesh_listen=listen, mesh_allow=allow, ops_listen="127.0.0.1:0"
    )


async def fails_to_start(settings: BrokerConfig) -> str:
    broker = Broker(settings, Tracer())
    with pytest.raises(StartupError) as caught:
        await broker.start()
    await broker.close()
    message = str(caught.value)
    assert "\n" not in message
    return message


async def test_every_op_is_served_over_the_mesh_and_survives_a_restart(tmp_path: Path) -> None:
    # The mesh itself answers two of the others; two concern the broker, and no shard.
    assert set(OPS) == set(OpCode) - FOR_EVERY_NODE - {OpCode.LOOK_AT_SHARDS}
    gateway = Identity.load_or_create(tmp_path / "gateway.key")
    settings = config(tmp_path, allow=(gateway.node_id,))
    batch = batch_of(b"1", b"2")
    for turn in range(2):
        broker = Broker(settings, Tracer())
        await broker.start()
        described = broker.describe()
        host, port = described["mesh"].rsplit(":", 1)
        allowed = frozenset([described["node_id"]])
        client = MeshClient(host, int(port), gateway, allowed, Tracer())
        await client.start()
        if turn == 0:
            made = await client.call(CreateTopic("t"), org_id=1, deadline=5)
            assert isinstance(made, CreateTopicResp)
            op = ProduceOps([ProduceOp("t", 0, batch)])
            stored = await client.call(op, org_id=1, deadline=5, lane=0)
            assert isinstance(stored, ProduceOpsResp)
            assert stored.partitions[0].error_code == 0
        read = await client.call(FetchOps([FetchOp("t", 0, 0, 10**6)]), org_id=1, deadline=5)
        assert isinstance(read, FetchOpsResp)
        assert [bytes(found) for found in read.partitions[0].records] == [
            batch[:12] + bytes(4) + batch[16:]
        ]
        await client.close()
        await broker.close()


async def test_a_new_leader_epoch_begins_when_no_gateway_serves_from_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard, "LEASE_SECONDS", 0.5)
    settings = config(tmp_path)
    loop = asyncio.get_running_loop()
    waited: list[bool] = []
    outlive = Shard._outlive_leases

    async def watched(its: Shard, held: float) -> None:
        await outlive(its, held)
        assert broker.describe()["mesh"] == ":0", "nobody is answered yet"
        waited.append(loop.time() >= held + 0.5)

    monkeypatch.setattr(Shard, "_outlive_leases", watched)
    for expected in ([], [True], [True]):
        broker = Broker(settings, Tracer())
        await broker.start()
        await broker.close()
        assert waited == expected
        if not expected:
            require_new_epoch(RealDisk(settings.folder / "wal"), restored=False)


async def test_a_broker_that_recovers_is_live_but_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threads.Event(), threads.Event()
    open_log = Log.open

    def slowly(log: Log, *arguments: Any) -> None:
        begun.set()
        assert go_on.wait(10)
        open_log(log, *arguments)

    monkeypatch.setattr(Log, "open", slowly)
    broker = Broker(config(tmp_path), Tracer())
    starting = asyncio.create_task(broker.start())
    await asyncio.to_thread(begun.wait, 10)
    address = broker.describe()["operations"]

    async def ask(path: str) -> tuple[int, str, str]:
        return await asyncio.to_thread(get, address, path)

    assert (await ask("/livez"))[0] == 200
    status, _, told = await ask("/readyz")
    assert (status, json.loads(told)["problems"]) == (503, {"broker": "recovering the log"})
    assert "quafka_build_info" in (await ask("/metrics"))[2]
    assert "broker: recovering the log" in (await ask("/statusz"))[2]
    go_on.set()
    await starting
    assert (await ask("/readyz"))[0] == 200
    await broker.close()


async def test_one_broker_a_folder(tmp_path: Path) -> None:
    first = Broker(config(tmp_path), Tracer())
    await first.start()
    assert "held by another broker" in await fails_to_start(config(tmp_path))
    await first.close()
    again = Broker(config(tmp_path), Tracer())
    await again.start()
    await again.close()


async def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert address in await fails_to_start(config(tmp_path, address))


async def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    assert "cannot use the data folder" in await fails_to_start(config(tmp_path))


async def test_damage_does_not_stop_the_start(tmp_path: Path) -> None:
    broker = Broker(config(tmp_path), Tracer())
    await broker.start()
    await broker.close()
    log = tmp_path / "data" / "wal" / "000000000000.log"
    log.write_bytes(log.read_bytes() + b"?")  # a torn write
    again = Broker(config(tmp_path), Tracer())
    await again.start()
    await again.close()


async def test_a_damaged_registry_does_not_stop_the_start(tmp_path: Path) -> None:
    broker = Broker(config(tmp_path), Tracer())
    await broker.start()
    await broker.close()
    log = tmp_path / "data" / "wal" / "000000000000.log"
    log.write_bytes(log.read_bytes()[:-1])
    for _ in range(2):
        again = Broker(config(tmp_path), Tracer())
        await again.start()
        await again.close()


def test_fsync_policies() -> None:
    assert fsync_policy("commit") == FsyncPolicy(None)
    assert fsync_policy("never") == FsyncPolicy(0.0)
    assert fsync_policy("interval:250") == FsyncPolicy(0.25)


@pytest.mark.parametrize("org", [0, -1, 2**32])
async def test_no_gateway_may_speak_for_the_brokers_own_org(org: int) -> None:
    async with running_state(MemoryDisk()) as state:
        handler = OPS[OpCode.CREATE_TOPIC]
        with pytest.raises(OpFailedError) as caught:
            await serve(handler, state, context(org), CreateTopic("__quafka_registry"))
        assert caught.value.error_code == ErrorCode.INVALID_REQUEST
        await asyncio.sleep(0)
        assert state.registry.every_topic() == []
