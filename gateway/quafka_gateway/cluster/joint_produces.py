"""Small produce requests that arrive together share an op.

An op costs gateway and broker several times as much as one more partition in an op. So while
produces are unanswered, requests that arrive in one turn of the event loop leave in joint ops at
its end, which is when ops of their own would leave, too (docs/adr/0049).

The answer to a joint op comes when the last of its batches is durable. So a batch joins only if it
waits for nothing but the shared commit: if it is short and not compressed, and its partition's last
answer had `prompt` set. The lane of a joint op is that of its requests, and a request that does not
join leaves after the earlier ones of its lane.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
from functools import cached_property, partial
from typing import Any

from quafka_loop.eager_task import DirectFuture, EagerTask
from quafka_loop.fair_turns import FairTurns
from quafka_loop.turn_end import turn_end
from quafka_mesh_ops.frames import LANES
from quafka_mesh_ops.ops.records import ProduceOp, ProduceOpResp, ProduceOps, ProduceOpsResp
from quafka_proto.records import BATCH_HEADER_SIZE, claims

FEW = 4
"""Up to this many unanswered requests, each has its own op: no other would share it."""
MOST = 32
"""Partitions of a joint op: the requests that it answers continue in one call."""
MOST_BYTES = 256 << 10
"""Record bytes of a joint op: some tenths of a millisecond for the broker."""
MOST_RECORDS = 2_500
"""Records of a joint op: when the broker checks more, it yields to others
(`quafka_broker.admission.queue`)."""
_LONG_BYTES = 32 << 10
"""A longer batch costs more than its op."""
_MOST_KNOWN = 10_000
_NONE = 0, 0

Call = Callable[[ProduceOps, int, float], Coroutine[Any, Any, ProduceOpsResp]]
"""Sends an op on a lane, with a deadline in seconds."""
Failed = Callable[[Sequence[ProduceOp], BaseException], list[ProduceOpResp]]
"""The answers to a request whose op has failed, or raises what the client must see instead."""


class _Joining(DirectFuture[list[ProduceOpResp]]):
    """A request in a joint op, and its answers."""

    def __init__(
        self, joint: _Joint, partitions: list[ProduceOp], loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(loop=loop)
        self.partitions = partitions
        self.joint = joint

    def cancel(self, msg: Any | None = None) -> bool:
        cancelled = super().cancel(msg)
        if cancelled:
            self.joint.left()
        return cancelled


class _Joint:
    """A joint op: its requests and, once it is sent, its task."""

    __slots__ = (
        "_owner",
        "acks",
        "bytes",
        "partitions",
        "records",
        "requests",
        "task",
        "timeout",
    )

    def __init__(self, owner: JointProduces, acks: int, timeout: float) -> None:
        self._owner = owner
        self.acks = acks
        self.timeout = timeout
        self.requests: list[_Joining] = []
        self.partitions = self.bytes = self.records = 0
        self.task: EagerTask[ProduceOpsResp] | None = None

    def takes(self, op: ProduceOps, size: int, records: int, timeout: float) -> bool:
        """Whether a request with this many record bytes and records may be added."""
        return (
            self.partitions + len(op.partitions) <= MOST
            and self.bytes + size <= MOST_BYTES
            and self.records + records <= MOST_RECORDS
            and self.acks == op.acks
            and self.timeout == timeout
        )

    def add(self, request: _Joining, size: int, records: int) -> None:
        """Add a request that it takes."""
        self.requests.append(request)
        self.partitions += len(request.partitions)
        self.bytes += size
        self.records += records

    def left(self) -> None:
        """A request was cancelled; with the last one the op is cancelled, too."""
        self._owner.unanswered -= 1
        if self.task is not None and all(request.cancelled() for request in self.requests):
            self.task.cancel()


class JointProduces:
    """The joint ops for one broker.

    Attributes:
        unanswered: the requests in flight to the broker. The caller counts those that it sends
            alone.
    """

    def __init__(
        self,
        call: Call,
        failed: Failed,
        connected: Callable[[], bool] = lambda: True,
        turns: FairTurns | None = None,
        party: Hashable = None,
    ) -> None:
        """`connected`: whether an op would leave now. `turns`: in which requests continue; `party`:
        the org whose requests they are."""
        self.unanswered = 0
        self._call = call
        self._failed = failed
        self._connected = connected
        self._turns = turns or FairTurns()
        self._party = party
        self._filling: dict[int, _Joint] = {}  # by lane
        self._prompt: set[tuple[str, bytes, int]] = set()

    @cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the first call, kept: Python 3.11 makes a system call to find it."""
        return asyncio.get_running_loop()

    def join(
        self, op: ProduceOps, lane: int, timeout: float
    ) -> DirectFuture[list[ProduceOpResp]] | None:
        """Let a request share an op; None: it is to be sent alone, after `send`.

        The future has the request's answers, or what `Failed` makes of the op's error.
        """
        size, records = self._size_of(op) if self.unanswered >= FEW else _NONE
        if not size:
            return None
        lane %= LANES
        joint = self._filling.get(lane)
        if joint is None or not joint.takes(op, size, records, timeout):
            self.send(lane)
            joint = self._filling[lane] = _Joint(self, op.acks, timeout)
            turn_end(self.loop).call_first(partial(self._turn_ends, lane, joint))
        request = _Joining(joint, op.partitions, self.loop)
        joint.add(request, size, records)
        self.unanswered += 1
        return request

    def send(self, lane: int) -> None:
        """Send the joint op of a lane now: a request that does not share it follows."""
        joint = self._filling.pop(lane % LANES, None)
        if joint is None:
            return
        joint.requests = [request for request in joint.requests if not request.done()]
        if self._connected():
            if joint.requests:
                self._send(joint, lane)
            return
        # The op of each waits for the broker, and a request that is cancelled must not be sent.
        for request in joint.requests:
            own = request.joint = _Joint(self, joint.acks, joint.timeout)
            own.requests = [request]
            self._send(own, lane)

    def _send(self, joint: _Joint, lane: int) -> None:
        op = ProduceOps([part for each in joint.requests for part in each.partitions], joint.acks)
        task = joint.task = EagerTask(self._call(op, lane, joint.timeout), self.loop)
        task.add_direct_callback(partial(self._answered, joint, task))

    def learn(self, partitions: Iterable[ProduceOp], answers: Iterable[ProduceOpResp]) -> None:
        """Take note of the partitions for which requests may share an op."""
        known = self._prompt
        for part, answer in zip(partitions, answers, strict=False):
            key = part.topic, part.topic_id, part.partition
            if not answer.prompt:
                known.discard(key)
            elif key not in known:
                if len(known) >= _MOST_KNOWN:
                    known.clear()
                known.add(key)

    def _size_of(self, op: ProduceOps) -> tuple[int, int]:
        """The record bytes and records of a request; 0 if it may not share an op."""
        if op.transactional_id or len(op.partitions) > MOST:
            return _NONE
        size = records = 0
        for part in op.partitions:
            length = len(part.records)
            if not BATCH_HEADER_SIZE <= length <= _LONG_BYTES:
                return _NONE
            if (part.topic, part.topic_id, part.partition) not in self._prompt:
                return _NONE
            codec, count = claims(part.records)
            if codec or count > MOST_RECORDS:
                return _NONE
            size += length
            records += max(0, count)
        return (size, records) if size <= MOST_BYTES and records <= MOST_RECORDS else _NONE

    def _turn_ends(self, lane: int, joint: _Joint) -> None:
        if self._filling.get(lane) is joint:  # it may have left already
            self.send(lane)

    def _answered(self, joint: _Joint, task: EagerTask[ProduceOpsResp]) -> None:
        """Answer the requests of an op. Each continues in this call."""
        # The requests refer to the op: unless it drops them, only a garbage collection frees them.
        requests, joint.requests = joint.requests, []
        if task.cancelled():
            for request in requests:
                request.cancel()
            return
        error = task.exception()
        if error is not None:
            for request in requests:
                if not request.done():
                    self._fail(request, error)
            return
        self._share(requests, task.result().partitions)

    def _fail(self, request: _Joining, error: BaseException) -> None:
        self.unanswered -= 1
        try:
            answers = self._failed(request.partitions, error)
        except Exception as e:
            request.set_exception(e)
        else:
            request.set_result(answers)

    def _share(self, requests: Sequence[_Joining], answers: list[ProduceOpResp]) -> None:
        at = 0
        for request in requests:
            end = at + len(request.partitions)
            own = answers[at:end]
            at = end
            self.learn(request.partitions, own)
            if self._turns.shared:  # all of them together are more than a turn
                self._turns.run(self._party, partial(self._continue, request, own))
            else:
                self._continue(request, own)

    def _continue(self, request: _Joining, answers: list[ProduceOpResp]) -> None:
        if not request.done():
            self.unanswered -= 1
            request.set_result(answers)
