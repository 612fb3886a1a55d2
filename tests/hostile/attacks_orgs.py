"""One org takes all that its neighbours at the gateway could have."""

from __future__ import annotations

import contextlib
import time

from quafka_proto.schema import quafka
from quafka_proto.schema.fetch import FetchResponse
from quafka_proto.schema.groups import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tests.hostile.arena import Arena
from tests.hostile.catalogue import attack
from tests.support.kafka_calls import create_topic, fetch, fetch_request, metadata, produce
from tests.support.raw_client import RawClient

_LISTENERS = "OWN://127.0.0.1:0,OTHER://127.0.0.1:0"
_SESSIONS = 100
_CONNECTIONS = 300
_GATEWAY = (
    *("--listener-security-protocol-map", "OWN:PLAINTEXT,OTHER:PLAINTEXT"),
    *("--listener-org", "OTHER:2", "--fetch-cache-bytes", str(32 << 20)),
    *("--max-incremental-fetch-session-cache-slots", str(_SESSIONS)),
)
_LARGE = 1_000_000


def _limit(arena: Arena, connections: int) -> None:
    with arena.connect() as operator:
        request = quafka.AlterOrgRequest(
            org="2", limits=[quafka.OrgLimit("max.connections", connections)]
        )
        answer = operator.call(request, quafka.AlterOrgResponse, 0)
        assert answer.error_code == 0, answer.error_message


def _session(client: RawClient, topic: str, offset: int) -> int:
    request = fetch_request(topic, offset)
    request.session_epoch = 0
    return client.call(request, FetchResponse, 12).session_id


@attack("an org fills its fetch sessions, cache, groups, parked polls and connections",
        part_of_tests=True, gateway=_GATEWAY, listeners=_LISTENERS)  # fmt: skip
def org_takes_all(arena: Arena) -> None:
    _limit(arena, _CONNECTIONS)
    other = arena.cluster.address_of("OTHER")
    ours = arena.topic()
    with contextlib.ExitStack() as opened:
        victim = opened.enter_context(arena.connect(10))
        for _ in range(4):
            produce(victim, ours, bytes(_LARGE))
        assert fetch(victim, ours, 0).records
        session = _session(victim, ours, 4)
        assert session, "the victim has no fetch session"
        cached = arena.figures("gateway")["quafka_gateway_fetch_cache_bytes"]
        _take_all(opened, other, arena.name())
        after = arena.figures("gateway")
        assert after["quafka_gateway_fetch_sessions"] <= _SESSIONS
        assert cached <= after["quafka_gateway_fetch_cache_bytes"] <= 32 << 20
        began = time.monotonic()
        again = fetch_request(ours, 4)
        again.session_id, again.session_epoch, again.topics = session, 1, []
        answer = victim.call(again, FetchResponse, 12)
        assert (answer.error_code, answer.session_id) == (0, session), "the session is gone"
        newcomer = opened.enter_context(arena.connect(10))
        assert len(fetch(newcomer, ours, 0).records or b"") > _LARGE // 2
        assert time.monotonic() - began < 2.0


def _take_all(opened: contextlib.ExitStack, address: tuple[str, int], name: str) -> None:
    first = opened.enter_context(RawClient(address, 30, "attacker"))
    create_topic(first, name)
    for _ in range(48):
        produce(first, name, bytes(_LARGE))
    for _ in range(2):
        for offset in range(0, 48, 2):
            fetch(first, name, offset)
    for number in range(1_000):
        member = JoinGroupRequest(
            group_id=f"{name}-{number}",
            session_timeout_ms=6_000,
            rebalance_timeout_ms=6_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        first.call(member, JoinGroupResponse, 0)
    refused = 0
    for _ in range(_CONNECTIONS + 100):
        client = opened.enter_context(RawClient(address, 30, "attacker"))
        try:
            _session(client, name, 48)
            _session(client, name, 48)
            client.send(fetch_request(name, 48, max_wait_ms=30_000), 12)
        except OSError:
            refused += 1
    assert refused >= 100, f"the org has {_CONNECTIONS + 101 - refused} connections"
    assert metadata(first, name).topics[0].error_code == 0
