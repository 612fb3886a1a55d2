"""The engine of requests that are lists of items: partitions, topics, groups, transactional ids.

An API declares its `Items`: the right that each of them needs, what its name is of, and the answer
about one that no broker has answered. The engine refuses items, sends the others to their brokers,
and returns one answer for each, in the order of the items. It works in slices.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Generator, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Generic, TypeAlias, TypeVar

from quafka_gateway.cluster.cluster import OfTopic, RouteBy, Send, name_of
from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import DENIED, denied, may_on_cluster
from quafka_gateway.security.authorizer import NeededRight
from quafka_loop.slices import listed
from quafka_mesh_ops.ops.base import Op, R
from quafka_proto.acl_kinds import ResourceKind
from quafka_proto.errors import ErrorCode
from quafka_telemetry.tracing import Span, TraceContext

Item = TypeVar("Item", bound=str | OfTopic)
Answer = TypeVar("Answer")
Topic = TypeVar("Topic")
Part = TypeVar("Part")
TopicResult = TypeVar("TopicResult")
PartResult = TypeVar("PartResult")

_REFUSED: dict[int, ErrorCode] = {
    ResourceKind.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceKind.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceKind.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class Refused(Enum):
    """Where the answers about refused items are: Kafka has all three."""

    IN_PLACE = auto()
    FIRST = auto()
    LAST = auto()


def _unknown(_item: object) -> None:
    """No item has an answer already."""


@dataclass(frozen=True)
class Items(Generic[Item, Answer]):
    """The items of an API, and who answers about them.

    Attributes:
        span: the name of the span in which brokers are asked.
        right: the client needs it on each item.
        route: what the items' names are of.
        failed: makes the answer about an item that no broker has answered, from the item, the error
            code and, if the client may not use the item, a message.
        unless: a right on the cluster that stands for `right` on all items.
        refused: where the answers about refused items are.
        describe: names the items in the span.
    """

    span: str
    right: NeededRight
    route: RouteBy
    failed: Callable[[Item, int, str], Answer]
    unless: NeededRight | None = None
    refused: Refused = Refused.IN_PLACE
    describe: Callable[[Span, list[Item], RequestContext], None] | None = None

    async def answers(
        self,
        items: Iterable[Item],
        op: Callable[[list[Item]], Op[R]],
        found: Callable[[R], list[Answer]],
        context: RequestContext,
        known: Callable[[Item], Answer | None] = _unknown,
    ) -> list[Answer]:
        """Ask by an op for the items of one broker; `found` has the answers in its response.

        `known` has the answers about items that no broker is asked about.
        """

        async def call(send: Send, its: list[Item], _trace: TraceContext | None) -> list[Answer]:
            return found(await send(op(its)))

        return await self.answers_by(call, items, context, known)

    async def answers_by(
        self,
        call: Callable[[Send, list[Item], TraceContext | None], Awaitable[list[Answer]]],
        items: Iterable[Item],
        context: RequestContext,
        known: Callable[[Item], Answer | None] = _unknown,
    ) -> list[Answer]:
        """As `answers`, by a function that returns the answers about items of one broker."""
        named = asked = await listed(items)
        hidden = await self._hidden(named, context)
        given: list[Answer | None] = []
        if hidden or known is not _unknown:
            code = _REFUSED[self.right.resource]
            given = await listed(
                self.failed(item, code, DENIED) if name_of(item) in hidden else known(item)
                for item in named
            )
            both = zip(named, given, strict=True)
            asked = await listed(item for item, answer in both if answer is None)
        with context.child(self.span) as span:
            if self.describe is not None:
                self.describe(span, asked, context)
            trace = span.context

            def answered(send: Send, its: list[Item]) -> Awaitable[list[Answer]]:
                return call(send, its, trace)

            answers: list[Answer] = []
            if asked:
                ask = context.tenant.cluster.ask
                answers = await ask(self.route, asked, answered, self._unanswered, trace)
        if len(asked) == len(named):
            return answers
        if self.refused is Refused.IN_PLACE:
            rest = iter(answers)
            return await listed(next(rest) if answer is None else answer for answer in given)
        others = await listed(answer for answer in given if answer is not None)
        return others + answers if self.refused is Refused.FIRST else answers + others

    async def _hidden(self, items: list[Item], context: RequestContext) -> Collection[str]:
        """The names of the items that the client may not use."""
        if self.unless is not None and may_on_cluster(self.unless, context):
            return ()
        return await denied(map(name_of, items), self.right, context)

    def _unanswered(self, item: Item, code: int, _text: str) -> Answer:
        return self.failed(item, code, "")


AnyItems: TypeAlias = Items[Any, Any]
"""Items of any kind, as an API declares them."""


def topic_results(
    topics: Iterable[tuple[Topic, Iterable[Part]]],
    answers: Iterable[Answer],
    part_result: Callable[[Part, Answer], PartResult],
    topic_result: Callable[[Topic, list[PartResult]], TopicResult],
) -> Generator[None, None, list[TopicResult]]:
    """Answers about partitions by topic, as in the request: for `in_slices`."""
    rest = iter(answers)
    results: list[TopicResult] = []
    for topic, parts in topics:
        its: list[PartResult] = []
        results.append(topic_result(topic, its))
        yield
        for part in parts:
            its.append(part_result(part, next(rest)))
            yield
    return results
