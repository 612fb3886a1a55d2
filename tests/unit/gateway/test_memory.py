"""Which connections may be read from, and which are closed when requests hold too much memory."""

from __future__ import annotations

from quafka_gateway.memory import HeldRequests, RequestMemory


class Clients:
    """Connections that share a memory, and those that it closed and resumed."""

    def __init__(self, limit: int, per_address: int = 0) -> None:
        self.memory = RequestMemory(limit, per_address)
        self.closed: list[str] = []
        self.resumed: list[str] = []

    def connect(self, name: str, address: str = "192.0.2.1", org: int = 0) -> HeldRequests:
        held = self.memory.open(
            address, lambda _: self.closed.append(name), lambda: self.resumed.append(name)
        )
        if org:
            held.enter(org)
        return held


def test_the_most_bytes_for_the_longest_time_make_room_and_not_the_next_bytes() -> None:
    clients = Clients(1_000)
    for number, size in enumerate((300, 290, 280)):
        clients.connect(f"old {number}").hold_partial(size, 0.0, is_new=True)
    honest = clients.connect("honest")
    honest.hold_partial(150, 100.0, is_new=True)
    assert clients.closed == ["old 0"]
    assert clients.memory.held == 720
    honest.hold_partial(400, 110.0, is_new=False)
    assert clients.closed == ["old 0"]
    honest.hold_partial(440, 110.0, is_new=False)
    assert clients.closed == ["old 0", "old 1"]


def test_six_unfinished_frames_from_one_address_cost_that_address_alone() -> None:
    clients = Clients(1_000, per_address=500)
    attackers = [clients.connect(f"attacker {n}", "198.51.100.7") for n in range(6)]
    other = clients.connect("other", "192.0.2.2")
    other.hold_partial(400, 0.0, is_new=True)
    for second in range(10):
        for attacker in attackers:
            attacker.hold_partial(attacker.partial + 20, 100.0 + second, is_new=not second)
    assert clients.closed
    assert all(name.startswith("attacker") for name in clients.closed)
    assert clients.memory.held <= 400 + 500


def test_an_address_or_a_connection_with_too_many_whole_requests_alone_is_not_read_from() -> None:
    clients = Clients(8_000, per_address=3_000)
    first, second = clients.connect("first"), clients.connect("second")
    other = clients.connect("other", "192.0.2.2")
    first.hold(1_001, 0.0)  # an eighth and more
    assert [h.full for h in (first, second, other)] == [True, False, False]
    first.wait_for_room()
    second.hold(2_000, 0.0)
    assert [h.full for h in (first, second, other)] == [True, True, False]
    second.wait_for_room()
    first.release(1, 1.0)
    assert clients.resumed == ["first"]
    second.release(1_900, 2.0)
    assert sorted(clients.resumed) == ["first", "second"]


def test_all_waiting_connections_are_resumed_when_they_have_room() -> None:
    clients = Clients(1_000)
    big, small = clients.connect("big"), clients.connect("small", "192.0.2.2")
    big.hold(1_500, 0.0)
    for held in (big, small):
        assert held.full
        held.wait_for_room()
    gone = clients.connect("gone")
    gone.wait_for_room()
    gone.connection_lost()
    big.release(1_500, 1.0)
    assert sorted(clients.resumed) == ["big", "small"]
    assert clients.memory.held == 0


def test_requests_after_a_parked_one_do_not_stop_reading_for_long() -> None:
    clients = Clients(1_000)
    parked, busy = clients.connect("parked"), clients.connect("busy", "192.0.2.2")
    parked.hold(700, 0.0)
    busy.hold(600, 0.0)
    clients.memory.relieve(5.0)
    busy.release(100, 14.0)  # responses leave
    clients.memory.relieve(14.0)
    assert clients.closed == []
    clients.memory.relieve(15.0)
    assert clients.closed == ["parked"]
    parked.release(700, 15.0)
    clients.memory.relieve(40.0)
    assert clients.closed == ["parked"]


def test_an_address_is_forgotten_with_its_last_connection_and_its_last_request() -> None:
    clients = Clients(8_000, per_address=1_000)
    first = clients.connect("first")
    first.hold(900, 0.0)
    first.connection_lost()
    second = clients.connect("second")
    second.hold(200, 1.0)
    assert second.full  # the lost connection's request still counts
    second.wait_for_room()
    first.release(900, 2.0)
    assert clients.resumed == ["second"]
    second.release(200, 3.0)
    second.connection_lost()
    assert clients.memory.held == 0
    third = clients.connect("third")
    third.hold(900, 4.0)
    assert not third.full


def test_an_org_within_its_share_is_not_barred_by_others() -> None:
    clients = Clients(8_000)
    hostile = [clients.connect(f"hostile {n}", f"192.0.2.{n}", org=1) for n in range(10)]
    for each in hostile:
        each.hold(1_000, 0.0)
    mine = clients.connect("mine", "198.51.100.1", org=2)
    nobody = clients.connect("nobody", "198.51.100.2")
    assert all(each.full for each in hostile)
    assert [mine.full, nobody.full] == [False, False]
    for each in hostile:
        each.wait_for_room()
    for _ in range(4):
        mine.hold(900, 0.0)
    assert mine.full, "as any connection with an eighth"
    clients.memory.relieve(1.0)
    clients.memory.relieve(12.0)
    assert len(clients.closed) == 1
    assert clients.closed[0].startswith("hostile")
    for each in hostile[:6]:
        each.release(1_000, 13.0)
    assert len(clients.resumed) == 10, "the org is within its share"


def test_unfinished_requests_of_an_org_within_its_share_are_kept() -> None:
    clients = Clients(1_000)
    mine = clients.connect("mine", "198.51.100.1", org=2)
    mine.hold_partial(400, 0.0, is_new=True)
    for number in range(20):
        hostile = clients.connect(f"hostile {number}", f"192.0.2.{number}", org=1)
        hostile.hold_partial(100, 1000.0, is_new=True)
    assert clients.closed
    assert "mine" not in clients.closed
    assert clients.memory.held <= 1_000


def test_an_org_is_forgotten_with_its_last_connection_and_its_last_request() -> None:
    clients = Clients(1_000)
    for org in range(1, 5):
        held = clients.connect(f"of {org}", org=org)
        held.hold(10, 0.0)
        held.connection_lost()
        held.release(10, 1.0)
    assert vars(clients.memory)["_orgs"].keys() == {0}
