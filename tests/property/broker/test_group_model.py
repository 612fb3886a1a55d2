"""Any number of members that join, sync, beat, vanish, leave and come back while time passes.

What must hold whatever they do: a generation's partitions have one owner each, generations only
grow, also over a crash of the coordinator that loses what was not saved, every wait ends within
the greatest timeouts, and members who do as they are told all own something in the end.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

from quafka_broker.groups.classic.states import ClassicState
from quafka_broker.groups.limits import GroupLimits
from quafka_proto.errors import ErrorCode
from tests.support.suites import examples
from tests.unit.broker.group_members import REBALANCE, SESSION, Clocked, Told

PARTITIONS = 6
LIMITS = GroupLimits(initial_delay=3, max_size=8)
LONGEST = 2 * REBALANCE + SESSION + 2 * LIMITS.initial_delay
PROTOCOLS = ((("range", b"1"),), (("range", b"2"), ("sticky", b"3")))
E = ErrorCode


class Client:
    """A member as clients are: it does what it is told."""

    def __init__(self, instance: str) -> None:
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.owns: bytes | None = None
        self.leads: list[str] = []
        self.waiting: Told | None = None
        self.since = 0.0
        self.syncs = False


class Groups(RuleBasedStateMachine):
    """The group, its clients, and what was ever assigned."""

    def __init__(self) -> None:
        super().__init__()
        self.clocked = Clocked(LIMITS, save_now=False)
        self.clients: list[Client] = []
        self.durable: dict[str, Any] | None = None
        self.owners: dict[tuple[int, int], str] = {}
        self.newest = 0
        self.crashes_so_far = 0

    # --- what clients do --------------------------------------------------------------------

    def join(self, client: Client, protocols: int = 0) -> None:
        client.owns = None
        client.syncs = False
        client.since = self.clocked.now
        client.waiting = self.clocked.join(
            client.member_id,
            client.instance,
            PROTOCOLS[protocols],
            require_member_id=not client.instance,
        )

    def answered(self, client: Client) -> None:
        """Act on an answer, as a client does."""
        told, client.waiting = client.waiting, None
        assert told is not None
        (answer,) = told.answers
        code = ErrorCode(answer.error_code)
        if client.syncs:
            self.synced(client, code, answer)
        elif code == E.NONE:
            assert answer.generation >= 1
            client.member_id, client.generation = answer.member_id, answer.generation
            client.leads = [member.member_id for member in answer.members or []]
            shares = dict.fromkeys(client.leads, b"")
            for partition in range(PARTITIONS if shares else 0):
                shares[client.leads[partition % len(shares)]] += bytes([partition])
            client.syncs, client.since = True, self.clocked.now
            client.waiting = self.clocked.sync(
                client.member_id, shares, client.generation, client.instance
            )
        elif code == E.MEMBER_ID_REQUIRED:
            client.member_id = answer.member_id
            self.join(client)
        elif code in (E.UNKNOWN_MEMBER_ID, E.FENCED_INSTANCE_ID):
            client.member_id = ""
        else:
            assert code in (
                E.REBALANCE_IN_PROGRESS, E.GROUP_MAX_SIZE_REACHED, E.COORDINATOR_NOT_AVAILABLE,
            ), code  # fmt: skip

    def synced(self, client: Client, code: ErrorCode, answer: Any) -> None:
        client.syncs = False
        if code == E.NONE:
            client.owns = answer.assignment
            for partition in answer.assignment:
                place = client.generation, partition
                # Of static members the instance is the owner: who comes back goes on for it.
                me = client.instance or client.member_id
                assert self.owners.setdefault(place, me) == me, place
            assert client.generation >= self.newest, "a generation came again"
            self.newest = client.generation
        elif code in (E.UNKNOWN_MEMBER_ID, E.FENCED_INSTANCE_ID):
            client.member_id = ""

    def settle(self) -> None:
        """Clients act on the answers that are there."""
        for client in self.clients:
            while client.waiting is not None and not client.waiting.parked:
                self.answered(client)

    # --- rules ------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        self.clients = [Client(""), Client(""), Client("i")]

    @rule(instance=st.sampled_from(["", "", "i", "j"]))
    def newcomer(self, instance: str) -> None:
        if len(self.clients) < 10:
            self.clients.append(Client(instance))

    @rule(at=st.integers(0, 9), protocols=st.integers(0, 1))
    def joins(self, at: int, protocols: int) -> None:
        client = self.clients[at % len(self.clients)]
        if client.waiting is None:
            self.join(client, protocols)
            self.settle()

    @rule(at=st.integers(0, 9))
    def beats(self, at: int) -> None:
        self.beat(self.clients[at % len(self.clients)])
        self.settle()

    def beat(self, client: Client) -> None:
        if client.waiting is not None or client.owns is None:
            return
        code = self.clocked.heartbeat(client.member_id, client.generation, client.instance)
        if code == E.REBALANCE_IN_PROGRESS:
            self.join(client)
        elif code != E.NONE:
            assert code in (E.UNKNOWN_MEMBER_ID, E.FENCED_INSTANCE_ID, E.ILLEGAL_GENERATION), code
            client.owns = None
            if code != E.ILLEGAL_GENERATION:
                client.member_id = ""

    @rule(at=st.integers(0, 9))
    def leaves(self, at: int) -> None:
        client = self.clients[at % len(self.clients)]
        if client.waiting is None and client.member_id:
            self.clocked.leave((client.member_id, client.instance))
            client.member_id, client.owns = "", None
            self.settle()

    @rule(at=st.integers(0, 9))
    def dies(self, at: int) -> None:
        """Its connection goes, and what it knew."""
        if len(self.clients) < 2:
            return
        client = self.clients.pop(at % len(self.clients))
        told, group = client.waiting, self.clocked.group
        if told is not None:
            for member_id in list(group.members):
                group.abandon_join(member_id, told, self.clocked.now)
                group.abandon_sync(member_id, told, self.clocked.now)

    @rule(seconds=st.sampled_from([0.5, 3, 4, SESSION, REBALANCE]))
    def time_passes(self, seconds: float) -> None:
        self.clocked.pass_time(seconds)
        self.settle()

    @rule(ok=st.sampled_from([True, True, True, False]))
    def is_saved(self, ok: bool) -> None:
        if ok and self.clocked.saving:
            self.durable = self.clocked.saved[-1]
        self.clocked.finish_saving(ok)
        self.settle()

    @rule()
    def crashes(self) -> None:
        """The coordinator starts again with what was durable; whoever waited asks again."""
        self.crashes_so_far += 1
        now = self.clocked.now
        self.clocked = Clocked(LIMITS, False, first_id=1_000 * self.crashes_so_far)
        self.clocked.now = now
        if self.durable is not None:
            self.clocked.group.restore(self.durable, {}, now)
        for client in self.clients:
            client.waiting, client.syncs = None, False

    # --- what must hold ---------------------------------------------------------------------

    @invariant()
    def every_wait_ends(self) -> None:
        for client in self.clients:
            if client.waiting is not None and not self.clocked.saving:
                assert self.clocked.now - client.since <= LONGEST

    @invariant()
    def somebody_looks_at_the_clock(self) -> None:
        group = self.clocked.group
        if group.state is not ClassicState.EMPTY:
            assert group.wake_at <= self.clocked.now + LONGEST

    def teardown(self) -> None:
        """From now on all do as they are told, and the log takes everything."""
        for client in self.clients[LIMITS.max_size // 2 :]:
            client.member_id = ""
        del self.clients[LIMITS.max_size // 2 :]
        seen: set[str] = set()
        for client in list(self.clients):
            if client.instance and client.instance in seen:
                self.clients.remove(client)  # two under one name fence each other for ever
            seen.add(client.instance)
        give_up = self.clocked.now + 2 * LONGEST
        while not self.is_shared():
            assert self.clocked.now < give_up
            for client in self.clients:
                if client.waiting is None and client.owns is None:
                    self.join(client)
                self.beat(client)
            self.settle()
            self.clocked.finish_saving()
            self.settle()
            self.clocked.pass_time(1)
            self.settle()

    def is_shared(self) -> bool:
        """Whether every partition is somebody's, and all know of the same generation."""
        newest = self.clocked.group.generation
        owned = [c.owns for c in self.clients if c.owns is not None and c.generation == newest]
        everything = sorted(b"".join(owned)) == list(range(PARTITIONS))
        return everything and len(owned) == len(self.clients)


TestGroups = Groups.TestCase
TestGroups.settings = examples(40, stateful_step_count=30)
