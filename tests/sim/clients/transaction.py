"""A transactional producer's protocol: one session of a transactional id (KIP-98, KIP-890).

Version 1 announces partitions and groups to the coordinator before they are used; with version 2
they join with their first use, and each end of a transaction raises the producer's epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

from quafka_proto.errors import ErrorCode as E
from quafka_proto.message import Request, Response
from quafka_proto.schema.produce import ProduceResponse
from quafka_proto.schema.producer_id import InitProducerIdRequest, InitProducerIdResponse
from quafka_proto.schema.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.sim.clients import batches
from tests.sim.clients.answers import DENIED, MOVED, UNKNOWN_TOPIC, is_certain, name_of
from tests.sim.clients.assigning import by_name
from tests.sim.clients.batches import Author, Values
from tests.sim.clients.job import Job, Place
from tests.sim.clients.topics import Topic, Topics
from tests.sim.clients.wire import Link, LostError

TIMEOUT_S = 10.0
"""A transaction that is open for longer is aborted by the coordinator."""
_GIVE_UP_S = 30.0
_NEWEST = 99
_VERSION_1 = {0: 11, 24: 3, 25: 3, 26: 4, 28: 4}
"""The last version of each API, by key, that belongs to version 1 of transactions."""
_AGAIN = MOVED | UNKNOWN_TOPIC | {E.CONCURRENT_TRANSACTIONS, E.CORRUPT_MESSAGE}
_OVER = DENIED | {
    E.PRODUCER_FENCED,
    E.INVALID_PRODUCER_EPOCH,
    E.INVALID_PRODUCER_ID_MAPPING,
    E.TRANSACTION_COORDINATOR_FENCED,
}

R = TypeVar("R", bound=Response)


class AbortableError(Exception):
    """The transaction can only be aborted."""


class OverError(Exception):
    """The session is over: another producer has the transactional id, or nobody knows."""


class Output(NamedTuple):
    """A batch of a transaction; `inputs`: the places and offsets that it is a copy of."""

    place: Place
    topic: Topic
    values: Values
    inputs: list[tuple[str, int, int]] | None = None


class _Sent(NamedTuple):
    output: Output
    call: int
    data: bytearray


class Session:
    """What one producer with a transactional id does. All methods retry as Kafka's clients do."""

    def __init__(self, job: Job, link: Link, topics: Topics, txn_id: str, *, version: int) -> None:
        """Has no producer id before `begin`."""
        self.author = Author()
        self._job = job
        self._link = link
        self._topics = topics
        self._id = txn_id
        self._caps = _VERSION_1 if version == 1 else {}
        self._implicit = version > 1
        self._sequences: dict[Place, int] = {}
        self._added: set[Place] = set()
        self._doubtful: set[int] = set()
        """Calls of which an attempt has had no answer."""
        self._sessions = 0
        self._txns = 0
        self.txn = ""
        """The name of the transaction in the history."""

    @property
    def _producer(self) -> str:
        return f"{self._job.name}#{self._sessions}"

    async def begin(self) -> None:
        """Get a producer id and epoch; fences whoever has had the transactional id.

        A new producer has a new connection: a broker refuses requests on connections older than the
        one that the transactional id was used on last.
        """
        self._link.leave()
        request = InitProducerIdRequest(
            transactional_id=self._id, transaction_timeout_ms=round(TIMEOUT_S * 1000)
        )
        while True:
            try:
                answer = await self._link.call(request, InitProducerIdResponse)
            except LostError:
                continue
            if not answer.error_code:
                break
            await self._link.back_off()
        self._link.works()
        self._sessions += 1
        self._start_epoch(answer.producer_id, answer.producer_epoch)

    def begin_transaction(self) -> None:
        """The next records are of a new transaction."""
        self._txns += 1
        self.txn = f"{self._job.name}-{self._txns}"
        self._added.clear()
        self._doubtful.clear()
        self._job.note(
            "begin",
            txn=self.txn,
            transactional_id=self._id,
            producer=self._producer,
            epoch=self.author.epoch,
        )

    def _start_epoch(self, producer_id: int, epoch: int) -> None:
        self.author = Author(producer_id, epoch)
        self._sequences.clear()

    # --- records ----------------------------------------------------------------------------

    async def write(self, outputs: Sequence[Output]) -> None:
        """Write one batch to each of some partitions. Raises AbortableError, OverError."""
        if not self._implicit:
            await self._add_partitions([output.place for output in outputs])
        pending = [self._sent(output) for output in outputs]
        give_up = self._deadline()
        while pending:
            sent, pending = pending, []
            request = batches.produce_request(
                ((s.output.place, s.output.topic, s.data) for s in sent), txn_id=self._id
            )
            try:
                answer = await self._call(request, ProduceResponse)
            except LostError:
                self._doubtful.update(each.call for each in sent)
                pending = sent
            else:
                parts = batches.produce_answers(answer, self._topics.names)
                for each in sent:
                    part = parts[each.output.place]
                    if not self._landed(each, part.error_code, part.base_offset, sent):
                        pending.append(each)
            if pending:
                await self._again(give_up, [each.call for each in pending])

    def _sent(self, output: Output) -> _Sent:
        sequence = self._sequences.get(output.place, 0)
        self._sequences[output.place] = sequence + len(output.values.values)
        fields = {} if output.inputs is None else {"inputs": [list(one) for one in output.inputs]}
        call = self._job.call(
            "produce",
            topic=output.place[0],
            partition=output.place[1],
            producer=self._producer,
            idempotent=True,
            epoch=self.author.epoch,
            txn=self.txn,
            **output.values.fields,
            **fields,
        )
        data = batches.batch_of(output.values, self.author, sequence, transactional=True)
        return _Sent(output, call, data)

    def _landed(self, each: _Sent, code: int, offset: int, sent: Sequence[_Sent]) -> bool:
        """Whether a batch was written; false: send it again. Raises AbortableError, OverError."""
        if code in (E.NONE, E.DUPLICATE_SEQUENCE_NUMBER):
            self._job.history.ok(
                each.call,
                offset=offset if offset >= 0 else None,
                topic_id=each.output.topic.text,
            )
            return True
        if code in _AGAIN:
            if not is_certain(code):
                self._doubtful.add(each.call)
            return False
        self._give_up(each.call, code)
        raise _error(code)

    # --- the coordinator --------------------------------------------------------------------

    async def _add_partitions(self, places: Sequence[Place]) -> None:
        new = [place for place in dict.fromkeys(places) if place not in self._added]
        if not new:
            return
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self.author.id,
            v3_and_below_producer_epoch=self.author.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=its)
                for name, its in by_name(new).items()
            ],
        )

        def codes(answer: AddPartitionsToTxnResponse) -> list[int]:
            return [
                part.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for part in topic.results_by_partition
            ]

        if code := await self._until_answered(request, AddPartitionsToTxnResponse, codes):
            raise _error(code)
        self._added.update(new)

    async def add_offsets(self, group: str, offsets: dict[Place, int]) -> None:
        """Commit a group's offsets with the transaction. Raises AbortableError, OverError."""
        if not self._implicit:
            join = AddOffsetsToTxnRequest(
                transactional_id=self._id,
                producer_id=self.author.id,
                producer_epoch=self.author.epoch,
                group_id=group,
            )
            code = await self._until_answered(
                join, AddOffsetsToTxnResponse, lambda answer: [answer.error_code]
            )
            if code:
                raise _error(code)
        request = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=group,
            producer_id=self.author.id,
            producer_epoch=self.author.epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=name,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=number, committed_offset=offsets[name, number]
                        )
                        for number in its
                    ],
                )
                for name, its in by_name(offsets).items()
            ],
        )
        call = self._job.call(
            "add_offsets",
            txn=self.txn,
            group=group,
            offsets=[[*place, offset] for place, offset in offsets.items()],
        )
        code = await self._until_answered(
            request,
            TxnOffsetCommitResponse,
            lambda answer: [p.error_code for t in answer.topics for p in t.partitions],
            call,
        )
        if code:
            self._give_up(call, code)
            raise _error(code)
        self._job.history.ok(call)

    async def end(self, *, commit: bool) -> None:
        """Commit or abort the transaction. Raises AbortableError, OverError if it has failed."""
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=self.author.id,
            producer_epoch=self.author.epoch,
            committed=commit,
        )
        call = self._job.call("commit" if commit else "abort", txn=self.txn)
        answers: list[EndTxnResponse] = []

        def codes(answer: EndTxnResponse) -> list[int]:
            answers.append(answer)
            return [answer.error_code]

        code = await self._until_answered(request, EndTxnResponse, codes, call)
        if code:
            self._give_up(call, code)
            raise OverError(name_of(code))
        self._job.history.ok(call)
        if self._implicit:
            self._start_epoch(answers[-1].producer_id, answers[-1].producer_epoch)

    # --- attempts ---------------------------------------------------------------------------

    async def _call(self, request: Request, answer: type[R]) -> R:
        newest = self._caps.get(request.api_key, _NEWEST)
        return await self._link.call(request, answer, newest=newest)

    async def _until_answered(
        self,
        request: Request,
        answer: type[R],
        codes: Callable[[R], list[int]],
        call: int | None = None,
    ) -> int:
        """Send a request until there is an answer that is final; its first error.

        Raises:
            OverError: there was none for too long.
        """
        give_up = self._deadline()
        while True:
            code: int | None = None
            with suppress(LostError):
                code = next(filter(None, codes(await self._call(request, answer))), 0)
            if code is not None and code not in _AGAIN:
                self._link.works()
                return code
            if call is not None and not is_certain(code or E.NETWORK_EXCEPTION):
                self._doubtful.add(call)
            await self._again(give_up, [] if call is None else [call])

    async def _again(self, give_up: float, calls: Sequence[int]) -> None:
        """Wait before another attempt, or give up. Raises OverError."""
        if asyncio.get_running_loop().time() > give_up:
            for call in calls:
                self._give_up(call, E.REQUEST_TIMED_OUT)
            raise OverError("no answer for too long")
        await self._link.back_off()

    def _give_up(self, call: int, code: int) -> None:
        """End a call that has failed, or may have been carried out by an earlier attempt."""
        history = self._job.history
        certain = is_certain(code) and call not in self._doubtful
        (history.fail if certain else history.unknown)(call, name_of(code))

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + _GIVE_UP_S


def _error(code: int) -> Exception:
    return OverError(name_of(code)) if code in _OVER else AbortableError(name_of(code))
