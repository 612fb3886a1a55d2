"""AlterUserScramCredentials (key 51), version 0: sets and removes passwords of the client's org.

A request changes one credential of a user: with several, the user gets DUPLICATE_RESOURCE and none
of them counts, as in Kafka. Results are in the order in which the request first names the users.
The client sends salted passwords; only keys derived from them are stored. Connections of the user
that logged in with a former password are closed.
"""

from __future__ import annotations

from collections.abc import Iterator

from quafka_gateway.cluster.broker_link import BrokerUnavailableError
from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import ALTER_CLUSTER, DENIED, may_on_cluster
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, SeenState
from quafka_gateway.security import users
from quafka_gateway.security.users import Alteration, Problem
from quafka_loop.slices import in_slices, listed
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.scram import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

_PER_OP = 200


async def handle(
    request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    """Apply the changes of each user whose changes are all valid."""
    wanted = await listed(_wanted(request))
    names = list(dict.fromkeys(each.name for each in wanted))
    if may_on_cluster(ALTER_CLUSTER, context):
        outcomes = await in_slices(
            users.problems(wanted, context.services.directory, context.tenant)
        )
        good = await listed(each for each in wanted if each.name not in outcomes)
        for first in range(0, len(good), _PER_OP):
            await _alter(good[first : first + _PER_OP], context, outcomes)
    else:
        outcomes = dict.fromkeys(names, (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, DENIED))
    return AlterUserScramCredentialsResponse(
        results=await listed(_result(name, outcomes.get(name)) for name in names)
    )


API = Api(
    key=51,
    versions=Versions(0, 0),
    request=AlterUserScramCredentialsRequest,
    handle=handle,
    access=(ALTER_CLUSTER,),
    order=Order(writes=SeenState.USERS),
    audited=True,
)


def _wanted(request: AlterUserScramCredentialsRequest) -> Iterator[Alteration]:
    for gone in request.deletions:
        yield Alteration(gone.name, gone.mechanism)
    for each in request.upsertions:
        yield Alteration(
            each.name, each.mechanism, each.iterations, each.salt, each.salted_password
        )


async def _alter(
    some: list[Alteration], context: RequestContext, outcomes: dict[str, Problem]
) -> None:
    """Have the broker store changes; add what it refuses to the outcomes."""
    changes = await listed(users.changes_of(some))
    with context.child("gateway.kafka.alter_user_scram_credentials") as span:
        try:
            writer = context.services.security_writer
            answer = await users.alter(writer, context.tenant, changes, span.context)
        except BrokerUnavailableError as e:
            for each in some:
                outcomes[each.name] = (e.code_or(ErrorCode.REQUEST_TIMED_OUT), str(e))
            return
    messages = answer.messages or [""] * len(some)
    for each, code, message in zip(some, answer.error_codes, messages, strict=True):
        if code:
            outcomes.setdefault(each.name, (code, message))


def _result(name: str, problem: Problem | None) -> AlterUserScramCredentialsResult:
    code, message = problem or (ErrorCode.NONE, "")
    return AlterUserScramCredentialsResult(
        user=name, error_code=code, error_message=message or None
    )
