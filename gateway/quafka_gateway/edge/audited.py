"""Runs the handlers of audited APIs and records the outcome of each request; of other APIs it
records the requests that were denied."""

from __future__ import annotations

from collections.abc import Collection

from quafka_gateway.cluster.broker_link import BrokerUnavailableError
from quafka_gateway.context import RequestContext
from quafka_gateway.edge.in_flight import InFlightRequest
from quafka_gateway.responses.encoded_response import EncodedResponse
from quafka_gateway.responses.error_codes import error_codes, error_codes_in_steps
from quafka_gateway.responses.response_length import is_long
from quafka_gateway.security.audit import DENIALS
from quafka_loop.slices import in_slices
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Message


async def handle_audited(
    request: InFlightRequest, context: RequestContext
) -> Message | EncodedResponse | None:
    """The handler's response. An error of the handler is recorded and raised on."""
    try:
        response: Message | EncodedResponse | None = await request.api.handle(
            request.message, context
        )
    except BrokerUnavailableError:
        _record(request, context, None, (ErrorCode.BROKER_NOT_AVAILABLE,))
        raise
    except Exception:
        _record(request, context, None, (ErrorCode.UNKNOWN_SERVER_ERROR,))
        raise
    if context.services.audit.wants(context.span):
        body = response if isinstance(response, Message) else None
        if body is not None and is_long(body):
            errors: Collection[int] = await in_slices(error_codes_in_steps(body))
        else:
            errors = error_codes(response)
        _record(request, context, body, errors)
    return response


def record_if_denied(
    request: InFlightRequest,
    context: RequestContext,
    response: Message | EncodedResponse | None,
    errors: Collection[int],
) -> None:
    """Record a request of another API that the authorizer has denied, even in part."""
    if request.api.audited or DENIALS.isdisjoint(errors) or request.message is None:
        return
    context.services.audit.denied(
        context.session,
        request.message,
        response if isinstance(response, Message) else None,
        errors,
        client_host=context.client_host,
        client_id=context.client_id,
    )


def _record(
    request: InFlightRequest,
    context: RequestContext,
    response: Message | None,
    errors: Collection[int],
) -> None:
    assert request.message is not None
    context.services.audit.act(
        context.session,
        request.message,
        response,
        errors,
        client_host=context.client_host,
        client_id=context.client_id,
        request_id=f"{context.lane}-{context.correlation_id}",
        span=context.span,
    )
