"""Small produce requests that arrive together share an op: which ones, in which order, and what
each of them is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from quafka_gateway.cluster.broker_link import BrokerLink, BrokerUnavailableError
from quafka_gateway.cluster.joint_produces import FEW, MOST, MOST_BYTES, MOST_RECORDS
from quafka_loop.eager_task import DirectFuture, EagerTask
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.errors import OpFailedError, OutcomeUnknownError
from quafka_mesh_ops.frames import LANES
from quafka_mesh_ops.ops.base import Buffer
from quafka_mesh_ops.ops.records import ProduceOp, ProduceOpResp, ProduceOps, ProduceOpsResp
from quafka_proto.errors import ErrorCode
from quafka_proto.record_codec import Record, build_batch
from quafka_telemetry.tracing import TraceContext
from tests.support.garbage import searched

LANE = 1
BATCH = bytes(build_batch([Record(0, 1_000, None, b"value", [])]))


class Mesh:
    """A mesh client whose ops are answered one by one."""

    def __init__(self) -> None:
        self.connected = True
        self.sent: list[tuple[int, ProduceOps]] = []
        self.deadlines: list[float] = []
        self.cancelled: list[ProduceOps] = []
        self._waiting: list[DirectFuture[ProduceOpsResp]] = []

    async def call(self, op: ProduceOps, *, lane: int, deadline: float, **_: Any) -> ProduceOpsResp:
        self.sent.append((lane % LANES, op))
        self.deadlines.append(deadline)
        answer: DirectFuture[ProduceOpsResp] = DirectFuture()
        self._waiting.append(answer)
        try:
            return await answer
        except asyncio.CancelledError:
            self.cancelled.append(op)
            raise

    def answer(self, number: int, *, prompt: bool = True) -> None:
        """Answer an op with the partition as each offset, and an error for partitions above 900."""
        answers = [
            ProduceOpResp(part.partition, error_code=2 * (part.partition > 900), prompt=prompt)
            for part in self.sent[number][1].partitions
        ]
        self._waiting[number].set_result(ProduceOpsResp(answers))

    def fail(self, number: int, error: Exception) -> None:
        self._waiting[number].set_exception(error)

    def forget(self) -> None:
        """Count ops anew."""
        self.sent.clear()
        self.deadlines.clear()
        self._waiting.clear()

    def partitions(self) -> list[tuple[int, ...]]:
        """Those of each op."""
        return [tuple(part.partition for part in op.partitions) for _, op in self.sent]


class Producers:
    """Requests over one link."""

    def __init__(self, mesh: Mesh) -> None:
        self.link = BrokerLink(cast(MeshClient, mesh), 1)
        self.mesh = mesh
        self.unanswered: list[EagerTask[list[ProduceOpResp]]] = []
        """Kept: nothing else refers to them once the mesh has forgotten them."""

    def produce(
        self,
        *partitions: int,
        lane: int = LANE,
        timeout: float = 5.0,
        trace: TraceContext | None = None,
        records: Buffer = BATCH,
        **fields: Any,
    ) -> EagerTask[list[ProduceOpResp]]:
        op = ProduceOps([ProduceOp("t", number, records) for number in partitions], **fields)
        return EagerTask(self.link.produce(op, lane, timeout, trace))


@pytest.fixture
def mesh() -> Mesh:
    return Mesh()


@pytest.fixture
async def busy(mesh: Mesh) -> Producers:
    """A link with FEW unanswered requests, to which partitions 0 to 999 are known as prompt."""
    producers = Producers(mesh)
    for first in range(0, 1_000, 100):
        producers.produce(*range(first, first + 100))
        mesh.answer(first // 100)
    producers.unanswered = [producers.produce(0) for _ in range(FEW)]
    mesh.forget()
    return producers


async def turn() -> None:
    """Let a turn end."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def offsets(tasks: Sequence[EagerTask[list[ProduceOpResp]]]) -> list[list[int]]:
    return [[answer.base_offset for answer in task.result()] for task in tasks]


async def test_few_requests_have_an_op_each_and_leave_at_once(mesh: Mesh) -> None:
    producers = Producers(mesh)
    producers.produce(1)
    mesh.answer(0)
    for _ in range(FEW):
        producers.produce(1)
    assert mesh.partitions() == [(1,)] * (1 + FEW)


async def test_requests_of_a_turn_share_an_op_and_get_their_own_answers(
    mesh: Mesh, busy: Producers
) -> None:
    tasks = [busy.produce(1), busy.produce(2, 3), busy.produce(1), busy.produce(901)]
    assert mesh.sent == []
    await turn()
    assert mesh.partitions() == [(1, 2, 3, 1, 901)]
    mesh.answer(0)
    assert offsets(tasks) == [[1], [2, 3], [1], [901]]
    assert [task.result()[0].error_code for task in tasks] == [0, 0, 0, 2]
    busy.produce(4)
    await turn()
    assert mesh.partitions()[1:] == [(4,)]


async def test_they_leave_nothing_to_the_search_for_garbage(mesh: Mesh, busy: Producers) -> None:
    with searched() as garbage:
        tasks = [busy.produce(1), busy.produce(2, 3)]
        await turn()
        mesh.answer(0)
        assert all(task.done() for task in tasks)
        tasks.clear()
        mesh.forget()
        await turn()
    assert garbage == []


async def test_each_lane_acks_and_timeout_has_ops_of_its_own(mesh: Mesh, busy: Producers) -> None:
    busy.produce(1)
    busy.produce(2, lane=LANE + 1)
    busy.produce(3, lane=LANE + LANES)
    busy.produce(4, acks=1)
    busy.produce(5, acks=1, timeout=6.0)
    busy.produce(6, acks=1, timeout=6.0)
    await turn()
    by_lane = {lane: [p for n, p in zip(mesh.sent, mesh.partitions(), strict=True) if n[0] == lane]
               for lane, _ in mesh.sent}  # fmt: skip
    assert by_lane == {LANE: [(1, 3), (4,), (5, 6)], LANE + 1: [(2,)]}
    assert {op.acks for _, op in mesh.sent} == {-1, 1}
    assert sorted(mesh.deadlines) == [5.0, 5.0, 5.0, 6.0]


async def test_an_op_has_a_bounded_number_of_partitions(mesh: Mesh, busy: Producers) -> None:
    tasks = [busy.produce(2 * number, 2 * number + 1) for number in range(MOST)]
    await turn()
    assert [len(partitions) for partitions in mesh.partitions()] == [MOST, MOST]
    mesh.answer(1)
    mesh.answer(0)
    assert offsets(tasks) == [[2 * number, 2 * number + 1] for number in range(MOST)]


async def test_an_op_has_a_bounded_number_of_bytes(mesh: Mesh, busy: Producers) -> None:
    batch = build_batch([Record(0, 1, None, bytes(20_000), [])])
    tasks = [busy.produce(number, records=batch) for number in range(20)]
    busy.produce(*range(20, 20 + MOST), records=batch)  # alone
    await turn()
    first = MOST_BYTES // len(batch)
    assert [len(partitions) for partitions in mesh.partitions()] == [first, 20 - first, MOST]
    mesh.answer(0)
    mesh.answer(1)
    assert offsets(tasks) == [[number] for number in range(20)]


async def test_an_op_has_a_bounded_number_of_records(mesh: Mesh, busy: Producers) -> None:
    batch = build_batch([Record(i, 1, None, b"", []) for i in range(1_000)])
    for number in range(1, 6):
        busy.produce(number, records=batch)
    await turn()
    most = MOST_RECORDS // 1_000
    assert [len(partitions) for partitions in mesh.partitions()] == [most, most, 5 - 2 * most]


@pytest.mark.parametrize(
    ("partition", "different"),
    [
        (9, {"transactional_id": "x"}),
        (9, {"trace": TraceContext(1, 1)}),
        (9, {"records": b"short"}),
        (9, {"records": BATCH + bytes(32 << 10)}),
        (9, {"records": build_batch([Record(0, 1, None, b"v", [])], codec=4)}),
        (
            9,
            {
                "records": build_batch(
                    [Record(i, 1, None, b"", []) for i in range(MOST_RECORDS + 1)]
                )
            },
        ),
        (1_000, {}),  # not known
    ],
)
async def test_every_other_request_leaves_at_once_after_those_of_its_lane(
    mesh: Mesh, busy: Producers, partition: int, different: dict[str, Any]
) -> None:
    busy.produce(1)
    busy.produce(2)
    busy.produce(3, lane=LANE + 1)
    busy.produce(partition, **different)
    assert mesh.partitions() == [(1, 2), (partition,)]
    busy.produce(4)
    await turn()
    assert sorted(mesh.partitions()[2:]) == [(3,), (4,)]


async def test_a_partition_that_kept_an_op_waiting_shares_none_until_it_is_prompt_again(
    mesh: Mesh, busy: Producers
) -> None:
    busy.produce(1)
    busy.produce(2)
    await turn()
    mesh.answer(0, prompt=False)
    busy.produce(1)
    assert mesh.partitions()[1:] == [(1,)]
    mesh.answer(1)
    busy.produce(1)
    busy.produce(2)
    assert mesh.partitions()[2:] == [(1,), (2,)]  # in their order


async def test_an_error_is_that_of_each_request_as_if_it_were_alone(
    mesh: Mesh, busy: Producers
) -> None:
    idempotent = build_batch([Record(0, 1, None, b"v", [])], producer_id=7)
    tasks = [busy.produce(1), busy.produce(2, 3, records=idempotent)]
    await turn()
    mesh.fail(0, OutcomeUnknownError("lost"))
    assert [answer.error_code for answer in tasks[0].result()] == [ErrorCode.REQUEST_TIMED_OUT]
    assert isinstance(tasks[1].exception(), BrokerUnavailableError)
    tasks = [busy.produce(1), busy.produce(2, 3, records=idempotent)]
    await turn()
    mesh.fail(1, OpFailedError(29))
    assert [[answer.error_code for answer in t.result()] for t in tasks] == [[29], [29, 29]]


async def test_a_cancelled_request_does_not_end_the_op_of_others(
    mesh: Mesh, busy: Producers
) -> None:
    tasks = [busy.produce(number) for number in range(4)]
    tasks[0].cancel()  # before it is sent: it never is
    await turn()
    assert mesh.partitions() == [(1, 2, 3)]
    tasks[1].cancel()
    await turn()
    mesh.answer(0)
    assert offsets(tasks[2:]) == [[2], [3]]
    assert [task.cancelled() for task in tasks] == [True, True, False, False]


async def test_the_op_is_cancelled_with_its_last_request(mesh: Mesh, busy: Producers) -> None:
    tasks = [busy.produce(number) for number in range(2)]
    await turn()
    for task in tasks:
        task.cancel()
        await turn()
    assert [len(op.partitions) for op in mesh.cancelled] == [2]
    only = busy.produce(5)
    only.cancel()
    await turn()
    assert len(mesh.sent) == 1


async def test_without_a_connection_each_waits_in_an_op_of_its_own(
    mesh: Mesh, busy: Producers
) -> None:
    """A cancelled request must not be sent in an op that others keep."""
    tasks = [busy.produce(number) for number in range(3)]
    mesh.connected = False  # in the turn in which they arrived
    await turn()
    assert mesh.partitions() == [(0,), (1,), (2,)]
    tasks[1].cancel()
    await turn()
    assert [op.partitions[0].partition for op in mesh.cancelled] == [1]
    mesh.answer(0)
    mesh.answer(2)
    assert offsets(tasks[::2]) == [[0], [2]]
