"""Counters of the ops that a broker answers, and a list of slow ones."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from quafka_loop import clock
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.base import AnyStruct, OpCode
from quafka_mesh_ops.ops.groups import JoinGroupResp, SyncGroupResp
from quafka_mesh_ops.ops.records import FetchOpsResp
from quafka_mesh_ops.ops.shares import AcquireRecordsResp
from quafka_mesh_ops.ops.table import OPS
from quafka_telemetry.metrics import Histogram

SLOW_OPS = 100
"""The number of slow ops that are remembered."""
_ALL_WAITING = frozenset({OpCode.HOLD_LEASE, OpCode.WATCH_SECURITY})


class SlowOp(NamedTuple):
    """A slow op: `at` is the Unix time of its end; `seconds` excludes `parked`."""

    at: float
    op: str
    org: int
    peer: str
    seconds: float
    parked: float
    trace_id: str


class OpStats:
    """The counters of one op code. `errors` counts ops that failed as a whole."""

    def __init__(self, code: OpCode, slow_seconds: float, slow: deque[SlowOp]) -> None:
        self.ops = 0
        self.errors: dict[int, int] = {}
        self.step = OPS[code].__name__
        """The op's name in the table of expected errors."""
        self.seconds = Histogram()
        self.parked = 0.0
        self._code = code
        self._slow_seconds = slow_seconds
        self._slow = slow

    def answered(self, context: OpContext, seconds: float, answer: AnyStruct) -> None:
        """Count an op that was answered after this many seconds."""
        parked = _parked(self._code, answer, seconds)
        seconds -= parked
        self.ops += 1
        self.parked += parked
        self.seconds.observe(seconds)
        if seconds >= self._slow_seconds:
            trace = context.trace
            self._slow.append(
                SlowOp(
                    clock.time(),
                    self._code.name.lower(),
                    context.org_id,
                    context.peer,
                    seconds,
                    parked,
                    "" if trace is None else trace.trace_hex,
                )
            )

    def failed(self, error: int) -> None:
        """Count an op that was answered with an error."""
        self.ops += 1
        self.errors[error] = self.errors.get(error, 0) + 1


class BrokerStats:
    """A broker's counters since its start, and the ops that took `slow_seconds` or longer."""

    def __init__(self, slow_seconds: float = 0.5) -> None:
        self.ops: dict[OpCode, OpStats] = {}
        self.slow: deque[SlowOp] = deque(maxlen=SLOW_OPS)
        self.slow_seconds = slow_seconds

    def of(self, code: OpCode) -> OpStats:
        """The counters of an op code."""
        stats = self.ops.get(code)
        if stats is None:
            stats = self.ops[code] = OpStats(code, self.slow_seconds, self.slow)
        return stats


def _parked(code: OpCode, answer: AnyStruct, seconds: float) -> float:
    if isinstance(answer, (FetchOpsResp, JoinGroupResp, SyncGroupResp, AcquireRecordsResp)):
        return answer.parked_us / 1e6
    return seconds if code in _ALL_WAITING else 0.0
