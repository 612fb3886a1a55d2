"""AlterClientQuotas (key 49), versions 0-1: sets and removes quotas in the client's org, durably.

Every entry succeeds or fails as a whole, and has its own error. A later entry of the same entity
comes after an earlier one. The answer has the parts of an entity in Kafka's order, whatever that of
the request: client-id, user. With `validate_only` nothing changes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from itertools import repeat

from quafka_gateway.cluster.broker_link import BrokerUnavailableError
from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import ALTER_CLUSTER_CONFIGS, DENIED, may_on_cluster
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, SeenState
from quafka_gateway.quotas import records
from quafka_gateway.quotas.alteration import change_problem
from quafka_loop.slices import in_slices, listed
from quafka_mesh_ops.ops.security import QuotaChange
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
    EntityData,
    ValueData,
)

_PER_OP = 200
_Outcome = tuple[int, str]
_GOOD: _Outcome = (ErrorCode.NONE, "")


async def handle(
    request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    """Apply each entry that is valid."""
    if not may_on_cluster(ALTER_CLUSTER_CONFIGS, context):
        refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, DENIED
        return AlterClientQuotasResponse(
            entries=await in_slices(_results(request, repeat(refused)))
        )
    changes = await in_slices(_changes(request))
    outcomes = await listed(map(_validated, changes))
    if not request.validate_only:
        with context.child("gateway.kafka.alter_client_quotas") as span:
            good = await listed(at for at, outcome in enumerate(outcomes) if outcome == _GOOD)
            for first in range(0, len(good), _PER_OP):
                some = good[first : first + _PER_OP]
                try:
                    answer = await records.alter(
                        context.services.security_writer,
                        context.tenant,
                        [changes[at] for at in some],
                        span.context,
                    )
                except BrokerUnavailableError as e:
                    for at in good[first:]:
                        outcomes[at] = (e.code_or(ErrorCode.REQUEST_TIMED_OUT), str(e))
                    break
                messages = answer.messages or [""] * len(some)
                for at, code, message in zip(some, answer.error_codes, messages, strict=True):
                    outcomes[at] = (code, message)
    return AlterClientQuotasResponse(entries=await in_slices(_results(request, outcomes)))


API = Api(
    key=49,
    versions=Versions(0, 1),
    request=AlterClientQuotasRequest,
    handle=handle,
    access=(ALTER_CLUSTER_CONFIGS,),
    order=Order(writes=SeenState.QUOTAS),
    audited=True,
)


def _changes(request: AlterClientQuotasRequest) -> Generator[None, None, list[QuotaChange]]:
    changes: list[QuotaChange] = []
    for entry in request.entries:
        change = QuotaChange(entry.entity, [], [])
        changes.append(change)
        for op in entry.ops:
            if op.remove:
                change.removed.append(op.key)
            else:
                change.values.append(ValueData(op.key, op.value))
            yield
        yield
    return changes


def _validated(change: QuotaChange) -> _Outcome:
    problem = change_problem(change)
    return (ErrorCode.INVALID_REQUEST, problem) if problem else _GOOD


def _results(
    request: AlterClientQuotasRequest, outcomes: Iterable[_Outcome]
) -> Generator[None, None, list[AlterClientQuotasResponseEntryData]]:
    results: list[AlterClientQuotasResponseEntryData] = []
    for entry, (code, message) in zip(request.entries, outcomes, strict=False):
        result = AlterClientQuotasResponseEntryData(error_code=code, error_message=message or None)
        results.append(result)
        yield
        for part in sorted(entry.entity, key=lambda each: each.entity_type):
            result.entity.append(EntityData(part.entity_type, part.entity_name))
            yield
    return results
