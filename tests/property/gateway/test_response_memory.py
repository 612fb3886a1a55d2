"""An org within its share of the response memory notices nothing of others, whatever they do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from quafka_gateway.memory import RESPONSE_FLOOR, OrgResponses, ResponseMemory, StuckClient

LIMIT = 64 << 20
ORGS = 8
INNOCENT = 1
_EIGHTH = 8


@st.composite
def _steps(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Which org asks for how much, and the place of the response of its that it reads first; -1:
    it reads none."""
    org = st.integers(INNOCENT, ORGS)
    wanted = st.sampled_from([1, RESPONSE_FLOOR, 1 << 20, LIMIT, 10 * LIMIT])
    return draw(st.lists(st.tuples(org, wanted, st.integers(-1, 3)), max_size=200))


def _orgs_with(memory: ResponseMemory, own: OrgResponses) -> int:
    return sum(memory.of(number) is own or memory.of(number).held > 0
               for number in range(INNOCENT, ORGS + 1))  # fmt: skip


@given(_steps())
def test_an_org_within_its_share_notices_nothing(steps: list[tuple[int, int, int]]) -> None:
    memory = ResponseMemory(LIMIT)
    orgs = {number: memory.of(number) for number in range(INNOCENT, ORGS + 1)}
    held: dict[int, list[int]] = {number: [] for number in orgs}
    for number, wanted, reads in steps:
        own = orgs[number]
        share = LIMIT // _orgs_with(memory, own)
        allowed = own.allowance(wanted)
        # A response is a part of what its org's share has room for, whoever holds how much.
        assert 2 * allowed > min(wanted, (share - own.held) // _EIGHTH)
        assert allowed >= min(wanted, RESPONSE_FLOOR)
        if own.held <= share:
            assert not memory.is_full(number)
        if number == INNOCENT and own.held + allowed > share:
            continue  # it stays within its share
        own.hold(allowed)
        held[number].append(allowed)
        if 0 <= reads < len(held[number]):
            own.release(held[number].pop(reads))
        assert not memory.is_full(INNOCENT) or orgs[INNOCENT].held > share
        _check_closing(memory, orgs, held)
    count = sum(map(len, held.values()))
    bound = sum(LIMIT / each for each in range(1, ORGS + 1)) + count * RESPONSE_FLOOR
    assert memory.held == sum(map(sum, held.values())) <= bound


def _check_closing(
    memory: ResponseMemory, orgs: dict[int, OrgResponses], held: dict[int, list[int]]
) -> None:
    """Clients lose their connections only above the limit, of orgs above their shares, and as
    many as it takes."""
    stuck = [
        StuckClient((number, size), orgs[number], size, 5.0 + number)
        for number, its in held.items()
        for size in its
    ]
    closed = list(memory.to_close(stuck))
    assert bool(closed) == (memory.excess > 0)
    left = {number: own.held for number, own in orgs.items()}
    for number, size in closed:
        assert orgs[number].excess > 0, "it is within its share"
        left[number] -= size
    assert sum(left.values()) <= LIMIT or all(
        left[number] - own.held + own.excess <= 0 for number, own in orgs.items()
    )


def test_an_org_alone_may_use_all_of_it() -> None:
    memory = ResponseMemory(LIMIT)
    alone = memory.of(2)
    held = 0
    while (more := alone.allowance(LIMIT)) > RESPONSE_FLOOR:
        alone.hold(more)
        held += more
    assert held > LIMIT - 2 * _EIGHTH * RESPONSE_FLOOR
    assert memory.of(1).allowance(LIMIT) == LIMIT // 2 // _EIGHTH
