"""Every API with items: brokers that are asked at once answer as brokers asked item by item.

The APIs are those that declare `items`, so a new one is tested as well. Requests name few topics,
groups and transactional ids, in any order and often. Some names the client may not use, some
brokers fail, and all of them answer in any order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, cast, get_args, get_origin
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quafka_gateway.api import APIS
from quafka_gateway.cluster.broker_link import BrokerLink, BrokerUnavailableError
from quafka_gateway.cluster.cluster import Cluster, Send, name_of
from quafka_gateway.cluster.routes import OrgRoutes
from quafka_gateway.config import EdgeSettings
from quafka_gateway.context import RequestContext, Services
from quafka_gateway.handlers.authorized import DENIED
from quafka_gateway.handlers.items import AnyItems, Items, Refused
from quafka_gateway.memory import RequestMemory, ResponseMemory
from quafka_gateway.security.acl_index import EVERY_OPERATION
from quafka_gateway.security.authorizer import Authorizer, NeededRight
from quafka_gateway.security.principal import Principal
from quafka_gateway.security.session import ClientSession
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.errors import OpFailedError, PeerUnavailableError
from quafka_mesh_ops.ops.base import AnyOp, AnyStruct
from quafka_mesh_ops.ops.forms import form_of, is_struct
from quafka_proto.acl_kinds import ResourceKind
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Message
from quafka_telemetry.tracing import NO_SPAN, TraceContext, Tracer
from tests.property.proto.messages import messages
from tests.support.any_message import renamed
from tests.support.suites import examples
from tests.support.tenants import LISTENER, only, tenant_over

ORG = 1
NAMES = ["", "a", "b", "orders", "logs.web", "naïve", "x" * 40]
DECLARED = [api for api in APIS.values() if api.items is not None]
_CODES = [0, 0, 0, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.GROUP_ID_NOT_FOUND]
_FAILURES = [
    None,
    None,
    PeerUnavailableError("gone"),
    OpFailedError(ErrorCode.REQUEST_TIMED_OUT),
    OpFailedError(ErrorCode.KAFKA_STORAGE_ERROR),
]
_REFUSED = {
    ResourceKind.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceKind.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceKind.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class FewNames(dict[str, str]):
    """Replaces every text of a message by one of few names."""

    def __init__(self, chance: Random) -> None:
        super().__init__()
        self._chance = chance

    def get(self, _key: str, _default: object = None) -> str:
        return self._chance.choice(NAMES)


@st.composite
def long_requests(draw: st.DrawFn, kind: type[Message], version: int) -> Message:
    """Requests with the items of several ones."""
    first, *others = draw(st.lists(messages(kind, version), min_size=3, max_size=6))
    for name, field in kind.FIELDS.items():
        if field.kind == "array":
            every = [item for each in (first, *others) for item in getattr(each, name) or ()]
            setattr(first, name, every)
    request: Message = renamed(first, FewNames(draw(st.randoms(use_true_random=False))))
    return request


@dataclass
class Broker:
    """A mesh client whose broker answers each item by the item alone, or fails.

    `older`: it knows no `others`.
    """

    failure: Exception | None
    delay: float
    connected: bool
    older: bool
    seconds_disconnected: float = 60.0
    said_goodbye: bool = False
    peer: str = "broker"

    async def call(self, op: AnyOp, **_: object) -> AnyStruct:
        await asyncio.sleep(self.delay)
        if any(getattr(op, name) for name in _list_names(op)):
            if not self.connected:
                raise PeerUnavailableError("there is no connection")
            if self.failure is not None:
                raise self.failure
        return self._answered(op.response, op)

    def _answered(self, kind: type[AnyStruct], asked: AnyStruct) -> AnyStruct:
        """One answer for each item of a list; `others` are lists of items."""
        answers: dict[str, Any] = {}
        for its, name in zip(_list_names(asked), _list_names(kind), strict=True):
            (one,) = get_args(_lists(_hint(kind, name))[0])
            items = getattr(asked, its)
            if name != "others":
                answers[name] = [_made(one, item) for item in items or ()]
            elif items is not None and not self.older:
                answers[name] = [self._answered(one, each) for each in items]
        return kind(**answers)


def _list_names(owner: AnyStruct | type[AnyStruct]) -> list[str]:
    form = form_of(owner if isinstance(owner, type) else type(owner))
    return [name for name, hint in zip(form.names, form.hints, strict=True) if _lists(hint)]


def _hint(owner: type[AnyStruct], name: str) -> Any:
    form = form_of(owner)
    return form.hints[form.names.index(name)]


def _lists(hint: Any) -> list[Any]:
    return [each for each in (hint, *get_args(hint)) if get_origin(each) is list]


def _made(hint: Any, item: object, field: str = "") -> Any:
    """A value that tells items, and fields, apart."""
    number = crc32(f"{item!r} {field}".encode())
    if hint is int:
        return _CODES[number % len(_CODES)] if "error" in field or not field else number
    if hint is bool:
        return number % 2 == 0
    if hint is bytes:
        return number.to_bytes(4) * 4
    if hint is str:
        return item if isinstance(item, str) else NAMES[number % len(NAMES)]
    if is_struct(hint):
        form = form_of(hint)
        declared = zip(form.names, form.hints, strict=True)
        return hint(**{name: _made(its, item, name) for name, its in declared})
    if _lists(hint) and number % 3:
        return [_made(get_args(_lists(hint)[0])[0], item, field)]
    return [] if get_origin(hint) is list else None


@dataclass
class Rules:
    """An authorizer, and the access that it gives to everybody."""

    hidden: set[str]
    cluster: bool
    generation = 1
    is_super = False
    principal = Principal("User", "somebody")
    org_id = ORG

    def access(self, _org_id: int, _principal: Principal, _host: str) -> Rules:
        return self

    def allows(self, right: NeededRight, name: str) -> bool:
        return self.cluster if right.resource == ResourceKind.CLUSTER else name not in self.hidden

    def decide(self, _kind: int, _name: str) -> int:
        return EVERY_OPERATION


async def one_by_one(
    items: AnyItems,
    call: Callable[[Send, list[Any], TraceContext | None], Awaitable[list[Any]]],
    named: Iterable[Any],
    context: RequestContext,
    known: Callable[[Any], Any] = lambda _item: None,
) -> list[Any]:
    """What `Items.answers_by` promises, without any split."""
    cluster, given, found = context.tenant.cluster, list[Any](), list[Any]()
    for item in named:
        name = name_of(item)
        everything = items.unless is not None and context.may(items.unless, "kafka-cluster")
        refused: Any = None
        if not everything and not context.may(items.right, name):
            refused = items.failed(item, _REFUSED[ResourceKind(items.right.resource)], DENIED)
        elif known(item) is not None:
            refused = known(item)
        if refused is not None:
            (found if items.refused is Refused.IN_PLACE else given).append(refused)
            continue
        link = cluster.links[cluster.routes.number_of(items.route.value[0], name)]
        try:
            found += await call(partial(link.call, trace=None), [item], None)
        except BrokerUnavailableError as e:
            found.append(items.failed(item, items.route.code(e), ""))
    return given + found if items.refused is Refused.FIRST else found + given


def _context(brokers: list[Broker], rules: Rules, version: int) -> RequestContext:
    links = [
        BrokerLink(cast(MeshClient, broker), ORG, f"shard:{number}")
        for number, broker in enumerate(brokers)
    ]
    responses = ResponseMemory(1 << 20)
    tenant = tenant_over(links[0], responses, ORG)
    tenant.cluster = Cluster(links, OrgRoutes((), ORG, len(links), by_name=True), "cluster")
    services = Services(
        APIS, only(tenant), (LISTENER,), Tracer(), 1 << 20, RequestMemory(1 << 20), responses,
        EdgeSettings(), authorizer=cast(Authorizer, rules),
    )  # fmt: skip
    return RequestContext(
        services, ClientSession(tenant), version, "test", 0, NO_SPAN, "/192.0.2.1"
    )


async def _answer(
    key: int, request: Message, brokers: list[Broker], rules: Rules, version: int
) -> Message:
    answer = await APIS[key].handle(request, _context(brokers, rules, version))
    assert isinstance(answer, Message)
    return answer


BROKERS = st.lists(
    st.builds(
        Broker,
        st.sampled_from(_FAILURES),
        st.sampled_from([0.0, 0.001, 0.002, 0.003]),
        st.sampled_from([True, True, True, False]),
        st.booleans(),
    ),
    min_size=1,
    max_size=4,
)
RULES = st.builds(Rules, st.sets(st.sampled_from(NAMES), max_size=3), st.booleans())


@pytest.mark.parametrize("key", [api.key for api in DECLARED], ids=[api.name for api in DECLARED])
@examples(100)
@given(data=st.data(), brokers=BROKERS, rules=RULES)
def test_answers_of_brokers_at_once_are_those_of_one_item_at_a_time(
    key: int, data: st.DataObject, brokers: list[Broker], rules: Rules
) -> None:
    api = APIS[key]
    version = data.draw(st.integers(api.versions.low, api.versions.high))
    request = data.draw(long_requests(api.request, version))
    answer = asyncio.run(_answer(key, request, brokers, rules, version))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Items, "answers_by", one_by_one)
        assert asyncio.run(_answer(key, request, brokers, rules, version)) == answer
