"""What an allow-list gives a gateway, as Kafka clients behind it see it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from quafka.cli import main
from quafka_broker.config.settings import BrokerConfig
from quafka_broker.server import Broker
from quafka_gateway.api import APIS
from quafka_gateway.responses.error_codes import error_codes
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.errors import OpFailedError
from quafka_mesh_ops.identity import Identity
from quafka_mesh_ops.ops.records import ProduceOp, ProduceOps
from quafka_mesh_ops.ops.snapshots import PinSnapshot
from quafka_mesh_ops.ops.table import OPS
from quafka_mesh_ops.ops.topics import CreateTopic, DescribeTopics
from quafka_mesh_ops.rights import FOR_EVERY_NODE, NEEDS
from quafka_proto.errors import ErrorCode
from quafka_proto.message import RESPONSES
from quafka_telemetry.tracing import Tracer
from tests.support.cluster import Cluster
from tests.support.confluent import consume
from tests.support.kafka_calls import create_topic, produce
from tests.support.raw_client import RawClient
from tests.support.snapshot_reader import in_folder, manifests, values
from tests.unit.broker.tools import batch_of
from tests.unit.gateway.test_declared_order import SAMPLES
from tests.unit.mesh_ops.op_fillers import least


def error_of(future: object) -> object:
    with pytest.raises(KafkaException) as caught:
        future.result(10)  # type: ignore[attr-defined]
    return caught.value.args[0].code()


@pytest.mark.long
def test_clients_of_a_gateway_see_which_right_it_lacks(tmp_path: Path) -> None:
    """The gateway serves org 1; it loses that org, and later only the right to administer."""
    file = tmp_path / "allowed"
    gateway = Identity.load_or_create(tmp_path / "gateway.key").node_id

    def allow(*options: str) -> None:
        assert main(["node", "allow", gateway, "--file", str(file), *options]) == 0

    allow("--org", "1")
    with Cluster(tmp_path, ("--mesh-allow", "", "--mesh-allowed-file", str(file))) as cluster:
        settings: dict[str, str | int | float | bool] = {"bootstrap.servers": cluster.bootstrap}
        producer, admin = Producer(settings), AdminClient(settings)
        producer.produce("t", b"first")
        assert producer.flush(20) == 0
        allow("--org", "2")
        time.sleep(1.0)  # the file is read every 0.3 s, twice
        failed: list[KafkaError | None] = []
        producer.produce("t", b"refused", on_delivery=lambda error, _: failed.append(error))
        assert producer.flush(20) == 0
        (error,) = failed
        assert error is not None
        assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        listed = admin.list_topics("t", timeout=10).topics["t"].error
        assert listed is not None
        assert listed.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        assert admin.list_topics(timeout=10).topics == {}
        (described,) = admin.describe_consumer_groups(["g"]).values()
        assert error_of(described) == KafkaError.GROUP_AUTHORIZATION_FAILED
        allow("--org", "1", "--may", "serve")
        time.sleep(1.0)
        (created,) = admin.create_topics([NewTopic("u", 1)]).values()
        assert error_of(created) == KafkaError.TOPIC_AUTHORIZATION_FAILED
        producer = Producer(settings)  # the first one remembers that it was refused
        producer.produce("t", b"second")
        assert producer.flush(20) == 0
        found = [message.value() for message in consume(cluster.bootstrap, "t", 2)]
        assert found == [b"first", b"second"]
        assert "does not let it serve org 1" in cluster.logs
        assert "does not let it administer org 1" in cluster.logs


async def test_a_broker_serves_each_node_its_orgs_and_nothing_of_others(tmp_path: Path) -> None:
    one, two = (Identity.load_or_create(tmp_path / f"{name}.key") for name in ("one", "two"))
    settings = BrokerConfig(
        data=tmp_path / "data",
        mesh_listen="127.0.0.1:0",
        mesh_allow=(f"{one.node_id} orgs=1", f"{two.node_id} orgs=2 may=serve,snapshot"),
        ops_listen="127.0.0.1:0",
    )
    broker = Broker(settings, Tracer())
    await broker.start()
    described = broker.describe()
    host, port = described["mesh"].rsplit(":", 1)
    clients = [
        MeshClient(host, int(port), who, {described["node_id"]}, Tracer()) for who in (one, two)
    ]
    try:
        for client in clients:
            await client.start()
        first, second = clients
        await first.call(CreateTopic("secret"), org_id=1, deadline=5)
        for client, op, org, code in (
            (first, CreateTopic("x"), 2, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            (second, DescribeTopics(), 1, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            (second, CreateTopic("x"), 2, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            (first, PinSnapshot(), 1, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
            (second, PinSnapshot(), 2, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ):
            with pytest.raises(OpFailedError) as caught:
                await client.call(op, org_id=org, deadline=5)
            assert caught.value.error_code == code
        assert (await second.call(DescribeTopics(), org_id=2, deadline=5)).topics == []
        for kind in OPS.values():
            if kind.code in FOR_EVERY_NODE:
                continue
            with pytest.raises(OpFailedError) as caught:
                await first.call(least(kind), org_id=2, deadline=5)
            assert caught.value.error_code == NEEDS[kind.code].refusal, kind
    finally:
        await asyncio.gather(*(client.close() for client in clients))
        await broker.close()


@pytest.mark.long
def test_an_org_that_the_gateway_may_not_speak_for_gets_errors_and_nothing_else(
    tmp_path: Path,
) -> None:
    """A listener names the org; the broker's allow-list does not give it to the gateway."""
    gateway = Identity.load_or_create(tmp_path / "gateway.key").node_id
    allowed = ("--mesh-allow", f"{gateway} orgs=1")
    args = (
        *("--listener-security-protocol-map", "ONE:PLAINTEXT,TWO:PLAINTEXT"),
        *("--listener-org", "TWO:2"),
    )
    listeners = "ONE://127.0.0.1:0,TWO://127.0.0.1:0"
    with Cluster(tmp_path, allowed, args, listeners=listeners) as cluster:
        with RawClient(cluster.address_of("ONE")) as one:
            create_topic(one, "t")
            produce(one, "t", b"of org 1")
        refused: dict[str, set[int]] = {}
        for key, (request, version) in SAMPLES.items():
            with RawClient(cluster.address_of("TWO")) as two:
                answer = two.call(request, RESPONSES[key], version)
                refused[APIS[key].name] = set(error_codes(answer))
        for name in ("Produce", "Fetch", "ListOffsets", "Metadata", "CreateTopics", "DeleteTopics"):
            assert refused[name] == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}, name
        for name in ("OffsetCommit", "JoinGroup", "Heartbeat", "DescribeGroups", "DeleteGroups"):
            assert refused[name] == {ErrorCode.GROUP_AUTHORIZATION_FAILED}, name
        for name in ("InitProducerId", "AlterClientQuotas", "AlterUserScramCredentials"):
            assert refused[name] == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}, name
        assert "Traceback" not in cluster.logs


@pytest.mark.long
async def test_a_node_snapshots_the_orgs_that_it_may_and_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = Identity.load_or_create(tmp_path / "node.key")
    entries = (
        f"{node.node_id} orgs=1-2 may=serve,administer",
        f"{node.node_id} orgs=2 may=snapshot",
    )
    settings = BrokerConfig(
        data=tmp_path / "data", mesh_listen="127.0.0.1:0", mesh_allow=entries,
        ops_listen="127.0.0.1:0",
    )  # fmt: skip
    broker = Broker(settings, Tracer())
    await broker.start()
    described = broker.describe()
    host, port = described["mesh"].rsplit(":", 1)
    client = MeshClient(host, int(port), node, {described["node_id"]}, Tracer())
    await client.start()

    def create(dest: Path, *options: str) -> int:
        at = ("--broker", described["mesh"], "--broker-id", described["node_id"])
        key = ("--node-key", str(tmp_path / "node.key"))
        return main(["snapshot", "create", str(dest), *at, *key, *options])

    async def fill() -> None:
        for org, name in ((1, "secret"), (2, "mine")):
            batches = [batch_of(b"%s %d" % (name.encode(), n)) for n in range(20)]
            await client.call(CreateTopic(name), org_id=org, deadline=5)
            for batch in batches:
                produce = ProduceOps([ProduceOp(name, 0, batch)])
                answer = await client.call(produce, org_id=org, deadline=5, lane=0)
                assert not answer.partitions[0].error_code

    dest = tmp_path / "lake"
    try:
        for turn in range(1, 3):
            await fill()
            assert await asyncio.to_thread(create, dest, "--org", "2") == 0
            manifest = manifests(dest)[-1]
            assert [topic.name for topic in manifest.topics] == ["mine"]
            expected = [b"mine %d" % n for _ in range(turn) for n in range(20)]
            assert values(in_folder(dest), manifest, 2, "mine") == expected
        assert len(manifest.pieces) == 2  # the second holds only what was new
        assert not any(b"secret" in path.read_bytes() for path in dest.rglob("*") if path.is_file())
        for options in ((), ("--org", "1")):
            capsys.readouterr()
            assert await asyncio.to_thread(create, tmp_path / "no", *options) == 2
            assert "needs may=snapshot, for every org or, with --org" in capsys.readouterr().err
        assert manifests(tmp_path / "no") == []
        assert list((tmp_path / "data" / "pins").iterdir()) == []
    finally:
        await client.close()
        await broker.close()
