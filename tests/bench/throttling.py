"""`python -m tests.bench throttling`: what the quotas of a client cost a request.

The look-up of a client's quotas and the decision, in CPU nanoseconds, best of many rounds: as the
handlers of Produce and the serving of a request make them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

from quafka_gateway.api import APIS
from quafka_gateway.cluster.broker_link import BrokerLink
from quafka_gateway.config import EdgeSettings
from quafka_gateway.context import RequestContext, Services
from quafka_gateway.memory import RequestMemory, ResponseMemory
from quafka_gateway.quotas.kinds import QuotaKind
from quafka_gateway.security.session import ClientSession
from quafka_mesh_ops.ops.security import (
    OrgRecord,
    QuotaRecord,
    SecurityChange,
    WatchSecurityResp,
)
from quafka_proto.schema.quafka import OrgLimit
from quafka_proto.schema.quotas import EntityData, ValueData
from quafka_telemetry.tracing import NO_SPAN, Tracer
from tests.support.tenants import LISTENER, only, tenant_over

_CALLS, _ROUNDS = 20_000, 30
_PLENTY = 1e15


def _context() -> RequestContext:
    memory = ResponseMemory(1 << 20)
    tenant = tenant_over(cast(BrokerLink, cast(Any, object())), memory)
    services = Services(
        APIS, only(tenant), (LISTENER,), Tracer(), 1 << 20, RequestMemory(1 << 20), memory,
        EdgeSettings(),
    )  # fmt: skip
    return RequestContext(services, ClientSession(tenant), 9, "client", 0, NO_SPAN)


def _set(context: RequestContext, *, clients: int, limits: bool) -> None:
    values = [
        ValueData(QuotaKind.PRODUCE.value, _PLENTY),
        ValueData(QuotaKind.REQUESTS.value, _PLENTY),
    ]
    changes = [
        SecurityChange(
            False, quota=QuotaRecord(1, [EntityData("client-id", f"client-{number}")], values)
        )
        for number in range(clients - 1)
    ]
    if clients:
        default = [EntityData("user", None)]
        changes.append(SecurityChange(False, quota=QuotaRecord(1, default, values)))
    org_limits = [OrgLimit(QuotaKind.PRODUCE.org_limit, _PLENTY)] if limits else []
    changes.append(SecurityChange(False, org=OrgRecord(1, "one", "active", org_limits)))
    context.services.directory.learn(WatchSecurityResp(b"i", 1, True, False, changes))


def _decide(context: RequestContext) -> None:
    """As `handlers/produce.py` does."""
    quotas = context.quotas
    if quotas is not None and quotas.produce is not None:
        quotas.produce.charge(1_000, time.monotonic())


def _nothing(context: RequestContext) -> None:
    pass


def _nanoseconds(call: Callable[[RequestContext], None], context: RequestContext) -> float:
    best = float("inf")
    for _ in range(_ROUNDS):
        began = time.process_time_ns()
        for _ in range(_CALLS):
            call(context)
        best = min(best, (time.process_time_ns() - began) / _CALLS)
    return best


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    argparse.ArgumentParser(prog="python -m tests.bench throttling").parse_args(arguments)
    context = _context()
    loop = _nanoseconds(_nothing, context)
    cases = (("no quotas", 0, False), ("a client's quota", 1, False),
             ("a client's quota and its org's", 1, True),
             ("the same among 10,000 quotas", 10_000, True))  # fmt: skip
    for name, clients, limits in cases:
        _set(context, clients=clients, limits=limits)
        print(f"  {name:34} {_nanoseconds(_decide, context) - loop:7.0f} ns a decision")
