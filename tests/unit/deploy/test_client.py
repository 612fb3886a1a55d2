"""The thin client, against servers that lack APIs, leaders or brokers."""

from __future__ import annotations

import asyncio

import pytest

from quafka_client.cluster import ClientCluster
from quafka_client.connection import ClientConnection
from quafka_client.errors import (
    ClientError,
    NotKafkaError,
    RequestRefusedError,
    UnreachableError,
    UnsupportedError,
    about,
    sentence,
)
from quafka_proto.errors import ErrorCode
from quafka_proto.headers import encode_response
from quafka_proto.schema.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from quafka_proto.schema.partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from tests.unit.deploy.fake_kafka import HOST, SECONDS, Fake, connected, serving


async def test_the_newest_version_of_both_is_spoken() -> None:
    fake = Fake({3: (0, 9), 37: (7, 9)})
    fake.answers[3] = MetadataResponse(cluster_id="c")
    async with connected(fake) as connection:
        assert (await connection.call(MetadataRequest(), MetadataResponse)).cluster_id == "c"
        assert fake.asked == [(18, 3), (3, 9)]
        assert fake.software == "quafka"
        await connection.call(MetadataRequest(), MetadataResponse, newest=4)
        assert fake.asked[-1] == (3, 4)
        assert not connection.has(CreatePartitionsRequest), "only newer versions than are known"


async def test_a_server_that_only_knows_the_first_api_versions() -> None:
    fake = Fake({3: (0, 1)}, oldest=True)
    fake.answers[3] = MetadataResponse()
    async with connected(fake) as connection:
        await connection.call(MetadataRequest(), MetadataResponse)
        assert fake.asked == [(18, 3), (3, 1)]


async def test_an_api_that_the_server_lacks_is_named() -> None:
    async with connected(Fake({3: (0, 9)})) as connection:
        with pytest.raises(UnsupportedError, match=r"does not support CreatePartitions \(API 37\)"):
            await connection.call(CreatePartitionsRequest(), CreatePartitionsResponse)


async def test_the_answer_to_a_cancelled_request_is_not_taken_for_that_of_the_next() -> None:
    fake = Fake({3: (0, 9)})
    fake.answers[3] = b"\0\0\0\x63half"
    async with serving(fake):
        connection = ClientConnection(HOST, fake.port, SECONDS, reopens=True)
        await connection.open()
        asked = asyncio.create_task(connection.call(MetadataRequest(), MetadataResponse))
        while (3, 9) not in fake.asked:
            await asyncio.sleep(0)
        asked.cancel()
        await asyncio.wait([asked])
        fake.answers[3] = MetadataResponse(cluster_id="c")
        assert (await connection.call(MetadataRequest(), MetadataResponse)).cluster_id == "c"
        await connection.close()


async def test_an_answer_to_another_request_is_none() -> None:
    fake = Fake({3: (0, 9)})
    fake.answers[3] = b"".join(encode_response(99, MetadataResponse(cluster_id="c"), 9))
    async with connected(fake) as connection:
        with pytest.raises(NotKafkaError, match="it is of another request"):
            await connection.call(MetadataRequest(), MetadataResponse)


async def test_requests_wait_until_a_connection_is_negotiated_again() -> None:
    fake = Fake({3: (0, 9)})
    fake.answers[3] = MetadataResponse(cluster_id="c")
    async with serving(fake):
        connection = ClientConnection(HOST, fake.port, SECONDS, reopens=True)
        await connection.open()
        await connection.close()

        async def later(turns: int) -> MetadataResponse:
            for _ in range(turns):
                await asyncio.sleep(0)
            return await connection.call(MetadataRequest(), MetadataResponse)

        found = await asyncio.gather(*(later(turns) for turns in range(40)))
        assert {each.cluster_id for each in found} == {"c"}
        assert fake.asked == [(18, 3), (18, 3), *([(3, 9)] * 40)]
        await connection.close()


@pytest.mark.parametrize("name", ["x" * 40_000, "\ud800"])
async def test_a_value_that_cannot_be_sent_is_a_sentence(name: str) -> None:
    fake = Fake({3: (0, 9), 37: (0, 3)})
    fake.answers[3] = MetadataResponse(cluster_id="c")
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=2)])
    async with connected(fake) as connection:
        with pytest.raises(ClientError, match="a value of CreatePartitions cannot be sent") as e:
            await connection.call(request, CreatePartitionsResponse)
        assert "\n" not in str(e.value)
        assert (await connection.call(MetadataRequest(), MetadataResponse)).cluster_id == "c"


@pytest.mark.parametrize(
    ("answer", "error", "why"),
    [
        (None, UnreachableError, "closed the connection on Metadata"),
        (b"\0\0\0\x06" + bytes(6), NotKafkaError, "sent a malformed answer to Metadata"),
        (b"\xff\xff\xff\xff", NotKafkaError, "is not Kafka"),
        (b"HTTP/1.1 400", NotKafkaError, "it is a web server"),
        (b"SSH-2.0-x", NotKafkaError, "it is an SSH server"),
        (b"\0\0\0\x63half", UnreachableError, r"does not answer Metadata within 0\.2 s"),
    ],
)
async def test_answers_that_are_none(
    answer: bytes | None, error: type[ClientError], why: str
) -> None:
    fake = Fake({3: (0, 9)})
    fake.answers[3] = answer
    async with connected(fake, timeout=0.2) as connection:
        with pytest.raises(error, match=why) as raised:
            await connection.call(MetadataRequest(), MetadataResponse)
        assert "\n" not in str(raised.value)


async def test_the_first_bootstrap_server_that_is_there_is_used() -> None:
    fake = Fake({3: (0, 9)})
    async with serving(fake):
        closed = (HOST, 1)
        async with ClientCluster([closed, (HOST, fake.port)], SECONDS) as cluster:
            assert cluster.any.port == fake.port
        with pytest.raises(UnreachableError, match="nothing listens on"):
            async with ClientCluster([closed, closed], SECONDS):
                pass


async def test_a_broker_is_looked_for_where_the_cluster_says() -> None:
    fake, other = Fake({3: (0, 9)}), Fake({3: (0, 9)})
    async with serving(fake), serving(other):
        fake.answers[3] = MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=0, host=HOST, port=fake.port),
                MetadataResponseBroker(node_id=1, host=HOST, port=other.port),
                MetadataResponseBroker(node_id=2, host=HOST, port=1),
            ]
        )
        async with ClientCluster([(HOST, fake.port)], SECONDS) as cluster:
            assert await cluster.node(0) is cluster.any
            assert (await cluster.node(1)).port == other.port
            assert await cluster.node(1) is await cluster.node(1)
            with pytest.raises(UnreachableError, match="the advertised address"):
                await cluster.node(2)
            with pytest.raises(UnreachableError, match="broker 7 is unavailable"):
                await cluster.node(7)


async def test_a_topic_without_a_leader_yet_is_asked_for_again() -> None:
    fake = Fake({3: (0, 9)})
    early = MetadataResponseTopic(name="t", error_code=ErrorCode.LEADER_NOT_AVAILABLE)
    fake.answers[3] = MetadataResponse(topics=[early])
    async with serving(fake), ClientCluster([(HOST, fake.port)], SECONDS) as cluster:
        asked = asyncio.create_task(cluster.topic("t"))
        while len(fake.asked) < 2:
            await asyncio.sleep(0.01)
        fake.answers[3] = MetadataResponse(topics=[MetadataResponseTopic(name="t")])
        assert (await asked).error_code == 0
        fake.answers[3] = MetadataResponse(topics=[MetadataResponseTopic(name="t", error_code=3)])
        with pytest.raises(RequestRefusedError, match="topic 't': no such topic"):
            await cluster.topic("t")


def test_errors_in_words() -> None:
    assert sentence(ErrorCode.NON_EMPTY_GROUP) == "the group has members; stop its consumers first"
    assert sentence(ErrorCode.NON_EMPTY_GROUP, "sent by the server") == "sent by the server"
    assert sentence(9_999) == "the server answered error 9999"
    assert about("topic 't'", "no") == "topic 't': no"
    assert about("topic 't'", "Topic 't' already exists.") == "Topic 't' already exists."


async def test_a_client_names_itself() -> None:
    fake = Fake({3: (0, 9)})
    fake.answers[3] = MetadataResponse(cluster_id="c")
    async with serving(fake):
        async with ClientCluster([(HOST, fake.port)], SECONDS) as cluster:
            await cluster.any.call(MetadataRequest(), MetadataResponse)
        assert fake.client_ids == {"quafka-cli"}
        fake.client_ids.clear()
        async with ClientCluster([(HOST, fake.port)], SECONDS, client_id="mine") as cluster:
            await cluster.any.call(MetadataRequest(), MetadataResponse)
        assert fake.client_ids == {"mine"}


async def test_a_cluster_that_was_left_is_not_connected_to_again() -> None:
    fake = Fake({3: (0, 9)})
    fake.answers[3] = MetadataResponse(cluster_id="c")
    async with serving(fake):
        cluster = ClientCluster([(HOST, fake.port)], SECONDS, reopens=True)
        async with cluster:
            await cluster.any.call(MetadataRequest(), MetadataResponse)
            await cluster.any.close()
            await cluster.any.call(MetadataRequest(), MetadataResponse)
        asked = list(fake.asked)
        with pytest.raises(UnreachableError, match="sign in again"):
            await cluster.any.call(MetadataRequest(), MetadataResponse)
        with pytest.raises(UnreachableError, match="sign in again"):
            await (await cluster.node(7)).call(MetadataRequest(), MetadataResponse)
        assert fake.asked == asked
