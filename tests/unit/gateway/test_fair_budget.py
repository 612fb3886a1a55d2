"""A bound that orgs share: idle shares may be used, and nobody loses what is within its share."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from quafka_gateway.fair_budget import BudgetPart, FairBudget, OrgShare


class Queue:
    """Holds pieces, and releases the oldest."""

    def __init__(self, share: OrgShare) -> None:
        self.pieces: deque[int] = deque()
        self.part: BudgetPart = share.part(self._release)

    def _release(self) -> None:
        self.part.hold(-self.pieces.popleft())

    def add(self, size: int) -> None:
        self.pieces.append(size)
        self.part.hold(size)
        self.part.settle()

    def add_if_room(self, size: int) -> bool:
        if not self.part.make_room(size):
            return False
        self.pieces.append(size)
        self.part.hold(size)
        return True


def test_one_org_uses_what_others_leave_idle() -> None:
    budget = FairBudget(100)
    one, _ = Queue(budget.open()), Queue(budget.open())
    for _ in range(30):
        one.add(10)
    assert (one.part.held, budget.held) == (100, 100)


def test_an_org_takes_its_share_back_from_the_largest() -> None:
    budget = FairBudget(100)
    one, two, three = (Queue(budget.open()) for _ in range(3))
    for _ in range(9):
        one.add(10)
    two.add(10)
    for _ in range(5):
        three.add(10)
    assert (one.part.held, two.part.held, three.part.held) == (60, 10, 30)
    for _ in range(20):
        three.add(10)
    assert two.part.held == 10
    assert budget.held <= 100


def test_the_parts_of_an_org_share_its_share() -> None:
    share = FairBudget(100).open()
    one, two = Queue(share), Queue(share)
    for _ in range(10):
        one.add(10)
    two.add(10)
    assert (one.part.held, two.part.held, share.held) == (90, 10, 100)
    assert one.part.size == 50


def test_an_org_that_gives_all_back_has_no_share() -> None:
    budget = FairBudget(100)
    one, two = Queue(budget.open()), Queue(budget.open())
    one.add(10)
    assert two.part.size == 50
    one.part.release()
    assert two.part.size == 100


def test_nobody_grows_beyond_its_share_by_taking() -> None:
    budget = FairBudget(100)
    one, two = Queue(budget.open()), Queue(budget.open())
    for _ in range(10):
        assert one.add_if_room(10)
    assert not one.add_if_room(10)
    assert two.add_if_room(50)
    assert not two.add_if_room(1)
    assert (one.part.held, two.part.held) == (50, 50)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 40), st.booleans()), max_size=80),
)
def test_whoever_is_within_its_share_loses_nothing_to_others(
    acts: list[tuple[int, int, bool]],
) -> None:
    budget = FairBudget(100)
    queues = [Queue(budget.open()) for _ in range(4)]
    for who, size, always in acts:
        before = [queue.part.held for queue in queues]
        (queues[who].add if always else queues[who].add_if_room)(size)
        assert budget.held == sum(queue.part.held for queue in queues) <= 100
        orgs = sum(held > 0 for held in before) + (before[who] == 0)
        for number, queue in enumerate(queues):
            if number != who:
                largest_piece = 40
                assert queue.part.held >= min(before[number], 100 // orgs - largest_piece)
