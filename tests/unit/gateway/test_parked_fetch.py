"""The end of a fetch that is parked at the broker, from the view of the client's connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from quafka_broker.state import BrokerState
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.fetch import FetchRequest, FetchResponse, ReplicaState
from quafka_proto.schema.produce import ProduceResponse
from quafka_proto.schema.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tests.support.fetch_calls import LONG, part, request_of
from tests.support.joined import Connected, Joined
from tests.support.kafka_calls import produce_request

V = 12


@pytest.fixture
async def joined() -> AsyncIterator[Joined]:
    """With a topic "t" of two partitions, and a place for one fetch session."""
    both = Joined(slots=1)
    await both.start_broker()
    new = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
    await both.connect().call(CreateTopicsRequest(topics=[new]), CreateTopicsResponse, 5)
    yield both
    await both.stop_broker()


def state_of(joined: Joined) -> BrokerState:
    assert joined.mesh.state is not None
    return joined.mesh.state


async def park(joined: Joined, request: FetchRequest) -> Connected:
    """Send it, and wait until it is parked."""
    client = joined.connect()
    await client.send(request, V)
    while not len(state_of(joined).parked_fetches):
        await asyncio.sleep(0)
    return client


async def put(joined: Joined) -> None:
    answer = await joined.connect().call(produce_request("t", b"x"), ProduceResponse, 9)
    assert answer.responses[0].partition_responses[0].error_code == 0


async def test_it_leaves_the_broker_when_its_client_goes(joined: Joined) -> None:
    client = await park(joined, request_of("t", part(), wait=LONG))
    client.connection.connection_lost(None)
    await client.connection.wait_ended()
    assert len(state_of(joined).parked_fetches) == 0


async def test_it_is_answered_when_its_session_is_evicted_meanwhile(joined: Joined) -> None:
    begin = request_of("t", part(), session=(0, 0))
    session = (await joined.connect().call(begin, FetchResponse, V)).session_id
    assert session > 0
    client = await park(joined, request_of("t", session=(session, 1), wait=LONG))

    replica = request_of("t", part(), session=(0, 0))
    replica.replica_id = 1
    replica.replica_state = ReplicaState(replica_id=1)
    other = (await joined.connect().call(replica, FetchResponse, V)).session_id
    assert other not in (0, session)

    await put(joined)
    answer = await client.receive(FetchResponse, V)
    assert (answer.error_code, answer.session_id) == (0, session)
    assert len(answer.responses[0].partitions[0].records or b"") > 0
    gone = await client.call(request_of("t", session=(session, 2)), FetchResponse, V)
    assert (gone.error_code, gone.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    again = await client.call(begin, FetchResponse, V)
    assert (again.error_code, again.session_id) == (0, 0), "no place: it is served without"
    assert len(again.responses[0].partitions[0].records or b"") > 0


async def test_it_ends_when_the_broker_drains(joined: Joined) -> None:
    client = await park(joined, request_of("t", part(), wait=LONG))
    state_of(joined).parked_fetches.drain()
    answer = await client.receive(FetchResponse, V)
    assert answer.responses[0].partitions[0].error_code == 0
