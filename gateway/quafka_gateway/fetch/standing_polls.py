"""Ops that stay parked at the broker between the fetches of idle consumers.

A consumer at the tail of its partitions fetches again as soon as its last fetch was answered
without records, mostly twice a second. A *standing* op for these partitions and offsets stays
parked at the broker for much longer. It is sent with min_bytes 1, so it ends as soon as any of the
partitions grows, and while it is parked, nothing has changed. Fetches wait for it one after
another, each until its own deadline, and cost no op (docs/adr/0046).

An empty answer is true of a moment after the fetch arrived, as is that of an op of its own: at the
deadline the broker must have answered an op that was sent after the arrival (`_Confirmation`). One
such op serves all fetches that wait at that moment.

A fetch may not wait, or ends its wait early, when the op ends with anything but nothing, when the
lease ends or its generation changes, and when a produce to the partitions was acknowledged after
the op was sent. It then takes the path of every other fetch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from quafka_gateway.fetch.broker_fetch import BrokerFetch
from quafka_gateway.fetch.cached_partition import PartitionKey
from quafka_gateway.fetch.produce_acks import Moment
from quafka_gateway.memory import RESPONSE_FLOOR, OrgResponses
from quafka_loop.deadlines import Bucket, Deadline, Deadlines
from quafka_loop.eager_task import EagerTask
from quafka_loop.wakeups import Wakeups
from quafka_mesh_ops.ops.records import FetchOp, FetchOps, FetchOpsResp

STANDING_SECONDS = 20.0
"""How long an op is parked before it is sent again."""
LINGER_SECONDS = 1.0
"""How long an op stays parked for a consumer that has its answer and does not fetch again."""
_SETTLED_SECONDS = 0.2
"""An op serves fetches that arrive this long after it was sent: the broker looks at many
partitions in slices, and the op must be parked before an op that confirms it."""
_MOST_UNUSED = 20_000
"""Partitions of ops for which no fetch waits, at most, unless it is one op."""
_BYTES = 256 << 10  # of an answer; if there is more, the next fetch finds batches missing
_TICK = 0.005


class TailWait:
    """A fetch that waits for a standing op."""

    __slots__ = ("_polls", "arrived", "bucket", "ended", "poll")

    def __init__(
        self,
        polls: StandingPolls,
        poll: StandingPoll,
        arrived: float,
        ended: Callable[[bool], object],
    ) -> None:
        self._polls = polls
        self.poll = poll
        self.arrived = arrived
        self.ended = ended
        """Called once. True: nothing has changed until the deadline."""
        self.bucket: Bucket | None = None

    def expire(self) -> None:
        """The deadline has passed."""
        self._polls.expired(self)

    def cancel(self) -> None:
        """Wait no longer: the client is gone. `ended` is not called."""
        self._polls.leave(self, cancelled=True)


@dataclass(slots=True, eq=False)
class StandingPoll:
    """One op at the broker.

    Attributes:
        keys: the partitions by topic id.
        sent: loop time.
        moment: when it was sent, counted in acknowledgements; `checked`: no later acknowledgement
            up to this one concerns its partitions.
        generation: the lease's, when it was sent.
        silent_until: loop time until which earlier ops in its place had found nothing.
        waits: the fetches that wait for it.
        unused: when to cancel it; None while fetches wait for it.
        alive: whether it is at the broker.
    """

    op: FetchOps
    keys: Sequence[PartitionKey]
    generation: int
    sent: float = 0.0
    moment: Moment = 0
    checked: Moment = 0
    silent_until: float = -1.0
    waits: dict[TailWait, None] = field(default_factory=dict[TailWait, None])
    unused: Deadline | None = None
    alive: bool = True
    task: EagerTask[FetchOpsResp] | None = None


class StandingPolls:
    """The standing ops of one broker, by partitions and offsets."""

    def __init__(self, broker: BrokerFetch, memory: OrgResponses) -> None:
        self._broker = broker
        self._memory = memory
        self._polls: dict[tuple[FetchOp, ...], StandingPoll] = {}
        self._unused: dict[StandingPoll, None] = {}  # the longest unused first
        self._unused_partitions = 0
        self._wakeups = Wakeups()
        self._confirmation = _Confirmation(broker)
        self._loop: asyncio.AbstractEventLoop
        self._deadlines: Deadlines | None = None
        self.waiting = 0
        """Fetches that wait."""
        self.begun = 0
        """Fetches that have waited, or wait."""

    def __len__(self) -> int:
        """The number of ops at the broker."""
        return len(self._polls)

    def find(
        self, partitions: Sequence[FetchOp], keys: Sequence[PartitionKey], keep_seconds: float
    ) -> StandingPoll:
        """The standing op for these partitions. If there is none it is sent, and kept for
        `keep_seconds` without a fetch that waits for it.
        """
        key = tuple(partitions)
        poll = self._polls.get(key)
        generation = self._broker.lease.generation
        # The topic may have been re-created: other acknowledgements concern the new one.
        if poll is not None and poll.generation == generation and poll.keys == keys:
            return poll
        if self._deadlines is None:
            self._loop = asyncio.get_running_loop()
            self._deadlines = Deadlines(self._loop, _TICK)
        if poll is not None:
            self._end(poll)
        op = FetchOps(
            list(partitions),
            max_wait_ms=round(STANDING_SECONDS * 1000),
            min_bytes=1,
            max_bytes=self._memory.allowance(_BYTES),
        )
        poll = self._polls[key] = StandingPoll(op, keys, generation)
        self._memory.hold(RESPONSE_FLOOR)
        self._send(poll)
        if poll.alive:
            self._set_unused(poll, keep_seconds)
        return poll

    def wait(
        self, poll: StandingPoll, seconds: float, ended: Callable[[bool], object]
    ) -> TailWait | None:
        """Wait this long for a change; None: the op does not serve a fetch that arrives now.

        `ended` may be called within this call only if `seconds` have passed.
        """
        now = self._loop.time()
        self._broker.lease.use()
        if not poll.alive or poll.sent > now - _SETTLED_SECONDS:
            return None
        if not self._is_true(poll) or self._acknowledged(poll):
            return None
        wait = TailWait(self, poll, now, ended)
        self._set_used(poll)
        poll.waits[wait] = None
        self.waiting += 1
        self.begun += 1
        assert self._deadlines is not None, "`find` made it"
        wait.bucket = self._deadlines.watch(now + seconds, wait) if seconds > 0 else None
        if wait.bucket is None:
            self.expired(wait)
        return wait

    def expired(self, wait: TailWait) -> None:
        """The deadline of a fetch has passed."""
        poll = wait.poll
        if wait not in poll.waits:
            return
        if not self._is_true(poll):
            self._over(wait, False)
        elif poll.silent_until >= wait.arrived:
            self._over(wait, True)
        elif poll.sent > wait.arrived:
            self._over(wait, False)  # sent again a moment ago: nothing is known yet
        elif self._confirmation.sent >= wait.arrived:
            self._over(wait, True)
        else:
            self._confirmation.confirm(wait.arrived, partial(self._confirmed, wait))

    def leave(self, wait: TailWait, *, cancelled: bool = False) -> None:
        """End a wait. The op stays for a while: its client fetches again, as a rule."""
        poll = wait.poll
        if wait not in poll.waits:
            return
        del poll.waits[wait]
        self.waiting -= 1
        if wait.bucket is not None:
            wait.bucket.pop(wait, None)
        if not poll.waits and poll.alive:
            if cancelled:
                self._end(poll)
            else:
                self._set_unused(poll, LINGER_SECONDS)

    def close(self) -> None:
        """Cancel all ops; the fetches that wait take the other path."""
        self._confirmation.close()
        for poll in list(self._polls.values()):
            self._end(poll)
        if self._deadlines is not None:
            self._deadlines.close()

    # --- what is true -----------------------------------------------------------------------

    def _is_true(self, poll: StandingPoll) -> bool:
        """Whether all that is known of the partitions is true as long as the op is parked."""
        lease = self._broker.lease
        return lease.generation == poll.generation and lease.valid

    def _acknowledged(self, poll: StandingPoll) -> bool:
        """Whether a produce to the partitions was acknowledged since the op was sent."""
        acks = self._broker.acks
        if acks.now == poll.checked:
            return False
        if any(acks.any_since(poll.moment, *key) for key in poll.keys):
            return True
        poll.checked = acks.now
        return False

    def _confirmed(self, wait: TailWait, is_silent: bool) -> None:
        poll = wait.poll
        if wait in poll.waits:
            self._over(wait, is_silent and poll.alive and self._is_true(poll))

    def _over(self, wait: TailWait, nothing: bool) -> None:
        self.leave(wait)
        wait.ended(nothing)

    # --- ops ----------------------------------------------------------------------------------

    def _send(self, poll: StandingPoll) -> None:
        poll.sent = self._loop.time()
        poll.moment = poll.checked = self._broker.acks.now
        task = poll.task = EagerTask(self._broker.fetch(poll.op, None), self._loop)
        task.add_direct_callback(partial(self._answered, poll, task))

    def _answered(self, poll: StandingPoll, task: EagerTask[FetchOpsResp]) -> None:
        if not poll.alive:
            return
        ends = poll.sent + STANDING_SECONDS
        is_empty = not task.cancelled() and task.exception() is None and _is_empty(task.result())
        # A broker that drains ends all waits early.
        if is_empty and poll.waits and ends <= self._loop.time() and self._is_true(poll):
            poll.silent_until = ends
            self._send(poll)
        else:
            self._end(poll)

    def _end(self, poll: StandingPoll) -> None:
        """Remove an op, and let the fetches that wait for it take the other path."""
        poll.alive = False
        self._set_used(poll)
        key = tuple(poll.op.partitions)
        if self._polls.get(key) is poll:
            del self._polls[key]
        self._memory.release(RESPONSE_FLOOR)
        if poll.task is not None:
            poll.task.cancel()
        waits = list(poll.waits)
        if waits:
            self._wakeups.wake(partial(self._woken, wait) for wait in waits)

    def _woken(self, wait: TailWait) -> None:
        if wait in wait.poll.waits:
            self._over(wait, False)

    # --- ops for which no fetch waits -------------------------------------------------------

    def _set_unused(self, poll: StandingPoll, seconds: float) -> None:
        """Cancel the op unless a fetch waits for it within this many seconds."""
        assert self._deadlines is not None, "`find` made it"
        poll.unused = self._deadlines.add(
            self._loop.time() + seconds, partial(self._unused_for_long, poll)
        )
        self._unused[poll] = None
        self._unused_partitions += len(poll.keys)
        while self._unused_partitions > _MOST_UNUSED and len(self._unused) > 1:
            self._end(next(iter(self._unused)))

    def _set_used(self, poll: StandingPoll) -> None:
        if poll.unused is not None:
            poll.unused.cancel()
            poll.unused = None
            del self._unused[poll]
            self._unused_partitions -= len(poll.keys)

    def _unused_for_long(self, poll: StandingPoll) -> None:
        if poll.alive and not poll.waits:
            self._end(poll)


class _Confirmation:
    """Confirms that ops which have no answer are still parked: with an op that is answered at once.

    A fetch without partitions is handled after the ops sent before it, and read in turn after the
    parked ops that were woken before it (`OpContext.may_read`).
    """

    def __init__(self, broker: BrokerFetch) -> None:
        self._broker = broker
        self.sent = -1.0
        """Loop time when the last answered op was sent."""
        self._is_asking = False
        self._waiting: list[tuple[float, Callable[[bool], object]]] = []
        self._task: EagerTask[FetchOpsResp] | None = None
        self._wakeups = Wakeups()

    def confirm(self, since: float, call: Callable[[bool], object]) -> None:
        """Call with True once the broker has answered an op that was sent after loop time `since`.

        With False if it does not answer.
        """
        self._waiting.append((since, call))
        if not self._is_asking:
            self._send()

    def close(self) -> None:
        """Cancel the op in flight."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()

    def _send(self) -> None:
        loop = asyncio.get_running_loop()
        self._is_asking = True
        sent = loop.time()
        op = FetchOps([], max_wait_ms=0, max_bytes=0)
        task = self._task = EagerTask(self._broker.fetch(op, None), loop)
        task.add_direct_callback(partial(self._answered, sent, task))

    def _answered(self, sent: float, task: EagerTask[FetchOpsResp]) -> None:
        self._is_asking = False
        if task.cancelled():
            return
        # Without an answer of the broker, and while a change is under way, it is not leased.
        silent = task.exception() is None and task.result().leased
        if silent:
            self.sent = sent
        ready = [call for since, call in self._waiting if since <= sent]
        self._waiting = [each for each in self._waiting if each[0] > sent]
        if self._waiting:
            self._send()
        self._wakeups.wake(partial(call, silent) for call in ready)


def _is_empty(answer: FetchOpsResp) -> bool:
    """Whether the answer leaves everything as it was."""
    return answer.leased and not any(
        part.records or part.error_code or part.diverging_epoch is not None
        for part in answer.partitions
    )
