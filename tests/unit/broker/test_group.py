"""The consumer group's state machine, under a clock that the tests set."""

from __future__ import annotations

import pytest

from quafka_broker.groups.classic.states import ClassicState
from quafka_broker.groups.deadlines import NEVER
from quafka_broker.groups.limits import GroupLimits
from quafka_proto.errors import ErrorCode
from tests.unit.broker.group_members import DELAY, REBALANCE, SESSION, Clocked

E = ErrorCode


def test_two_members_share_a_generation() -> None:
    clocked = Clocked()
    a, b = clocked.join(), clocked.join()
    assert (a.parked, b.parked, clocked.group.state) == (True, True, ClassicState.PREPARING)
    clocked.pass_time(DELAY)
    assert (a.answer.generation, a.answer.leader, a.answer.protocol) == (1, "c-1", "range")
    assert [member.member_id for member in a.answer.members] == ["c-1", "c-2"]
    assert (b.answer.generation, b.answer.leader, b.answer.members) == (1, "c-1", None)
    follower = clocked.sync("c-2")
    assert follower.parked
    leader = clocked.sync("c-1", {"c-1": b"one", "c-2": b"two"})
    assert (leader.answer.assignment, follower.answer.assignment) == (b"one", b"two")
    assert clocked.group.state is ClassicState.STABLE
    assert clocked.heartbeat("c-2") == E.NONE


def test_nothing_is_assigned_before_it_is_saved() -> None:
    clocked = Clocked(save_now=False)
    clocked.join()
    clocked.pass_time(DELAY)
    synced = clocked.sync("c-1", {"c-1": b"one"})
    assert (synced.parked, clocked.group.state) == (True, ClassicState.COMPLETING)
    clocked.finish_saving()
    assert (synced.answer.assignment, clocked.group.state) == (b"one", ClassicState.STABLE)


def test_what_could_not_be_saved_is_tried_again_by_the_members() -> None:
    clocked = Clocked(save_now=False)
    clocked.join()
    clocked.pass_time(DELAY)
    synced = clocked.sync("c-1", {"c-1": b"one"})
    clocked.finish_saving(ok=False)
    assert synced.error == E.COORDINATOR_NOT_AVAILABLE
    again = clocked.join("c-1")
    assert again.answer.generation == 2


def test_a_save_that_ends_in_a_later_generation_changes_nothing() -> None:
    clocked = Clocked(save_now=False)
    clocked.join()
    clocked.pass_time(DELAY)
    synced = clocked.sync("c-1", {"c-1": b"old"})
    clocked.join()
    assert synced.error == E.REBALANCE_IN_PROGRESS
    clocked.join("c-1")
    assert (clocked.group.generation, clocked.group.state) == (2, ClassicState.COMPLETING)
    clocked.finish_saving()
    assert clocked.group.state is ClassicState.COMPLETING


def test_the_initial_delay_is_made_longer_by_members_but_not_for_ever() -> None:
    clocked = Clocked()
    first = clocked.join(rebalance_timeout_ms=7_000)
    joined = 1
    while first.parked:
        clocked.pass_time(1)
        clocked.join(rebalance_timeout_ms=7_000)
        joined += 1
        assert joined < 20
    assert clocked.now == 7


def test_without_an_initial_delay_one_member_is_answered_at_once() -> None:
    clocked = Clocked(GroupLimits(initial_delay=0))
    assert clocked.join().answer.generation == 1


def test_a_new_member_makes_the_others_join_again() -> None:
    clocked = Clocked()
    (a,) = clocked.stable("")
    newcomer = clocked.join()
    assert newcomer.parked
    assert clocked.heartbeat(a) == E.REBALANCE_IN_PROGRESS
    assert clocked.sync(a).error == E.REBALANCE_IN_PROGRESS
    again = clocked.join(a)
    assert (again.answer.generation, newcomer.answer.generation) == (2, 2)


def test_who_does_not_join_again_in_time_is_left_out() -> None:
    clocked = Clocked()
    slow, other = clocked.stable("", "")
    clocked.join(other, protocols=(("range", b"new"),))
    rejoined = clocked.join(other)
    for _ in range(REBALANCE - 1):
        clocked.pass_time(1)
        assert clocked.heartbeat(slow) == E.REBALANCE_IN_PROGRESS
        assert rejoined.parked
    clocked.pass_time(1)
    assert (rejoined.answer.generation, rejoined.answer.leader) == (2, other)
    assert clocked.heartbeat(slow) == E.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_removed_when_its_session_ends() -> None:
    clocked = Clocked()
    silent, other = clocked.stable("", "")
    for _ in range(SESSION):
        assert clocked.heartbeat(other) == E.NONE
        clocked.pass_time(1)
    assert clocked.heartbeat(other) == E.REBALANCE_IN_PROGRESS
    assert clocked.heartbeat(silent) == E.UNKNOWN_MEMBER_ID
    assert clocked.join(other).answer.leader == other


def test_the_last_member_leaves_an_empty_group() -> None:
    clocked = Clocked()
    (a,) = clocked.stable("")
    assert clocked.leave((a, "")) == [E.NONE]
    assert (clocked.group.state, clocked.group.generation) == (ClassicState.EMPTY, 2)
    assert clocked.saved[-1]["state"] == "Empty"
    assert clocked.leave((a, "")) == [E.UNKNOWN_MEMBER_ID]
    clocked.pass_time(SESSION)
    assert clocked.group.wake_at == NEVER


def test_a_member_that_does_not_fetch_its_assignment_is_removed() -> None:
    clocked = Clocked()
    clocked.join()
    lazy = clocked.join()
    clocked.pass_time(DELAY)
    assert clocked.sync("c-1").answer.assignment == b""
    member = lazy.answer.member_id
    for _ in range(REBALANCE):
        clocked.heartbeat(member)
        clocked.heartbeat("c-1")
        clocked.pass_time(1)
    assert clocked.heartbeat(member) == E.UNKNOWN_MEMBER_ID


def test_the_leader_that_brings_nothing_is_replaced() -> None:
    clocked = Clocked()
    clocked.join()
    clocked.join()
    clocked.pass_time(DELAY)
    follower = clocked.sync("c-2")
    clocked.pass_time(SESSION)
    assert follower.error == E.REBALANCE_IN_PROGRESS
    assert clocked.join("c-2").answer.leader == "c-2"


# --- ids (KIP-394) --------------------------------------------------------------------------


def test_a_new_member_is_given_an_id_first() -> None:
    clocked = Clocked()
    told = clocked.join(require_member_id=True)
    assert (told.error, told.answers[0].member_id) == (E.MEMBER_ID_REQUIRED, "c-1")
    assert clocked.group.state is ClassicState.EMPTY
    again = clocked.join("c-1", require_member_id=True)
    clocked.pass_time(DELAY)
    assert again.answer.member_id == "c-1"


def test_an_id_that_is_not_used_expires() -> None:
    clocked = Clocked()
    clocked.join(require_member_id=True)
    clocked.pass_time(SESSION)
    assert clocked.join("c-1").error == E.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_a_member_that_has_only_an_id() -> None:
    clocked = Clocked(GroupLimits(initial_delay=0))
    (a,) = clocked.stable("")
    clocked.join(require_member_id=True)
    waits = clocked.join(a)
    assert waits.parked
    assert clocked.leave(("c-2", "")) == [E.NONE]
    assert waits.answer.generation == 2


def test_an_id_in_the_place_of_an_unknown_member() -> None:
    assert Clocked().join("nobody").error == E.UNKNOWN_MEMBER_ID


# --- joins that are said twice --------------------------------------------------------------


@pytest.mark.parametrize("role", [0, 1])
def test_a_member_may_lose_the_answer_to_its_join(role: int) -> None:
    clocked = Clocked()
    a, b = clocked.join(), clocked.join()
    clocked.pass_time(DELAY)
    lost = (a, b)[role].answer
    assert clocked.join(lost.member_id).answer == lost
    assert clocked.group.state is ClassicState.COMPLETING


def test_a_follower_may_join_a_stable_group_again() -> None:
    clocked = Clocked()
    leader, follower = clocked.stable("", "")
    assert clocked.join(follower).answer.generation == 1
    assert clocked.join(leader).parked  # it has seen something change


def test_a_changed_subscription_rebalances() -> None:
    clocked = Clocked()
    _, follower = clocked.stable("", "")
    assert clocked.join(follower, protocols=(("range", b"other"),)).parked
    assert clocked.group.state is ClassicState.PREPARING


def test_the_first_of_two_parked_joins_is_answered() -> None:
    clocked = Clocked()
    clocked.stable("", "")
    first = clocked.join("c-1")
    second = clocked.join("c-1")
    assert (first.error, second.parked) == (E.REBALANCE_IN_PROGRESS, True)


def test_a_parked_member_whose_client_is_gone_has_its_session_left() -> None:
    clocked = Clocked()
    (a,) = clocked.stable("")
    gone = clocked.join()
    clocked.group.abandon_join("c-2", gone, clocked.now)
    back = clocked.join(a)
    assert back.parked
    clocked.pass_time(SESSION)
    assert (back.answer.generation, [m.member_id for m in back.answer.members]) == (2, [a])
    assert gone.parked


# --- refusals -------------------------------------------------------------------------------


def test_protocols_must_have_one_in_common() -> None:
    clocked = Clocked()
    clocked.stable("", "")
    assert clocked.join(protocols=(("sticky", b""),)).error == E.INCONSISTENT_GROUP_PROTOCOL
    assert clocked.join(protocol_type="connect").error == E.INCONSISTENT_GROUP_PROTOCOL
    assert clocked.join(protocols=()).error == E.INCONSISTENT_GROUP_PROTOCOL
    assert clocked.join(protocol_type="").error == E.INCONSISTENT_GROUP_PROTOCOL


def test_a_single_member_may_change_its_protocols() -> None:
    clocked = Clocked()
    (a,) = clocked.stable("")
    again = clocked.join(a, protocols=(("sticky", b""),), protocol_type="other")
    assert (again.answer.protocol, again.answer.protocol_type) == ("sticky", "other")


def test_the_protocol_that_most_prefer_of_those_that_all_know() -> None:
    clocked = Clocked()
    for names in (("a", "b", "c"), ("b", "c"), ("c", "b", "d")):
        told = clocked.join(protocols=tuple((name, name.encode()) for name in names))
    clocked.pass_time(DELAY)
    assert told.answer.protocol == "b"
    assert clocked.group.members["c-1"].protocols["b"] == b"b"


@pytest.mark.parametrize("session", [5_999, 1_800_001, -1])
def test_session_timeouts_have_limits(session: int) -> None:
    assert Clocked().join(session_timeout_ms=session).error == E.INVALID_SESSION_TIMEOUT


def test_a_group_has_a_greatest_size() -> None:
    clocked = Clocked(GroupLimits(max_size=2))
    clocked.join()
    clocked.join(require_member_id=True)
    assert clocked.join().error == E.GROUP_MAX_SIZE_REACHED
    assert clocked.join("c-2").parked


def test_syncs_of_others_are_refused() -> None:
    clocked = Clocked()
    (a,) = clocked.stable("")
    assert clocked.sync("nobody").error == E.UNKNOWN_MEMBER_ID
    assert clocked.sync(a, generation=0).error == E.ILLEGAL_GENERATION
    assert clocked.sync(a, protocol="sticky").error == E.INCONSISTENT_GROUP_PROTOCOL
    assert clocked.sync(a, protocol_type="x").error == E.INCONSISTENT_GROUP_PROTOCOL
    assert clocked.sync(a, protocol_type="consumer", protocol="range").answer.protocol == "range"


def test_heartbeats_of_others_are_refused() -> None:
    clocked = Clocked()
    (a,) = clocked.stable("")
    assert clocked.heartbeat("nobody") == E.UNKNOWN_MEMBER_ID
    assert clocked.heartbeat(a, generation=7) == E.ILLEGAL_GENERATION


# --- commits --------------------------------------------------------------------------------


def test_who_may_commit() -> None:
    clocked = Clocked()
    for member, instance in (("", ""), ("own", ""), ("own", "i")):  # KIP-848's make their own id
        assert clocked.may_commit(member, -1, instance) == E.NONE
    assert clocked.may_commit("own", 0) == E.UNKNOWN_MEMBER_ID
    (a,) = clocked.stable("")
    assert clocked.may_commit("own", -1) == E.UNKNOWN_MEMBER_ID
    assert clocked.may_commit(a, -1) == E.ILLEGAL_GENERATION
    assert clocked.may_commit(a, 1) == E.NONE
    assert clocked.may_commit() == E.UNKNOWN_MEMBER_ID
    assert clocked.may_commit(a, 0) == E.ILLEGAL_GENERATION
    assert clocked.may_commit("nobody", 1) == E.UNKNOWN_MEMBER_ID
    clocked.join()
    assert clocked.may_commit(a, 1) == E.NONE  # what it has done before it joins again
    clocked.join(a)
    assert clocked.may_commit(a, 2) == E.REBALANCE_IN_PROGRESS


def test_a_commit_is_a_sign_of_life() -> None:
    clocked = Clocked()
    (a,) = clocked.stable("")
    for _ in range(3):
        clocked.pass_time(SESSION - 1)
        assert clocked.may_commit(a, 1) == E.NONE


# --- static members (KIP-345) ---------------------------------------------------------------


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    clocked = Clocked()
    leader, follower = clocked.stable("i", "j")
    assert (leader, follower) == ("i-1", "j-2")
    back = clocked.join(instance="j")
    assert (back.answer.generation, back.answer.member_id) == (1, "j-3")
    assert clocked.group.state is ClassicState.STABLE
    assert clocked.saved[-1]["members"][-1]["id"] == "j-3"
    assert clocked.heartbeat("j-2", instance="j") == E.FENCED_INSTANCE_ID
    assert clocked.sync("j-2", instance="j").error == E.FENCED_INSTANCE_ID
    assert clocked.may_commit("j-2", 1, "j") == E.FENCED_INSTANCE_ID
    assert clocked.join("j-2", "j").error == E.FENCED_INSTANCE_ID
    assert clocked.sync("j-3", instance="j").answer.assignment == b""


@pytest.mark.parametrize("knows", [False, True])
def test_a_static_leader_comes_back(knows: bool) -> None:
    clocked = Clocked()
    clocked.stable("i", "j")
    back = clocked.join(instance="i", knows_skip_assignment=knows).answer
    assert (back.skip_assignment, back.leader) == ((True, "i-3") if knows else (False, "i-1"))
    assert bool(back.members) == knows
    assert clocked.group.leader == "i-3"


def test_the_answer_to_a_replaced_static_member_waits_for_the_log() -> None:
    clocked = Clocked()
    clocked.stable("i")
    clocked._save_now = False
    back = clocked.join(instance="i")
    assert back.parked
    clocked.finish_saving()
    assert back.answer.member_id == "i-2"


def test_who_is_replaced_while_it_waits_is_fenced() -> None:
    clocked = Clocked()
    first = clocked.join(instance="i")
    second = clocked.join(instance="i")
    assert first.error == E.FENCED_INSTANCE_ID
    clocked.pass_time(DELAY)
    waits = clocked.sync("i-2", instance="i")
    assert (second.answer.member_id, waits.answer.assignment) == ("i-2", b"")


def test_a_static_member_that_is_away_keeps_its_place_until_its_session_ends() -> None:
    clocked = Clocked()
    (static,) = clocked.stable("i")
    clocked.pass_time(SESSION - 1)
    newcomer = clocked.join(rebalance_timeout_ms=1_000, session_timeout_ms=60_000)
    clocked.pass_time(0.5)
    assert static in clocked.group.members
    clocked.pass_time(0.5)
    assert static not in clocked.group.members
    assert newcomer.answer.generation == 2


def test_all_static_members_may_be_away_at_once() -> None:
    clocked = Clocked()
    clocked.stable("i", "j")
    gone = clocked.join("i-1", "i", (("range", b"new"),))  # a rebalance begins
    clocked.group.abandon_join("i-1", gone, clocked.now)
    clocked.pass_time(SESSION - 1)
    assert len(clocked.group.members) == 2
    clocked.pass_time(REBALANCE)
    assert (clocked.group.state, len(clocked.group.members)) == (ClassicState.EMPTY, 0)


def test_leaving_by_instance_id() -> None:
    clocked = Clocked()
    clocked.stable("i", "j")
    assert clocked.leave(("", "i"), ("i-1", "j"), ("", "x"), ("x", "")) == [
        E.NONE, E.FENCED_INSTANCE_ID, E.UNKNOWN_MEMBER_ID, E.UNKNOWN_MEMBER_ID,
    ]  # fmt: skip
    assert clocked.group.state is ClassicState.PREPARING


# --- the end, and a new beginning -----------------------------------------------------------


def test_only_an_empty_group_is_buried() -> None:
    clocked = Clocked()
    (a,) = clocked.stable("")
    assert clocked.group.begin_deletion() == E.NON_EMPTY_GROUP
    clocked.leave((a, ""))
    assert clocked.group.begin_deletion() == E.NONE
    assert clocked.group.begin_deletion() == E.GROUP_ID_NOT_FOUND
    assert clocked.join().error == E.COORDINATOR_NOT_AVAILABLE
    assert clocked.heartbeat(a) == E.COORDINATOR_NOT_AVAILABLE
    for member in ("", "own"):
        assert clocked.may_commit(member, -1) == E.COORDINATOR_NOT_AVAILABLE
    clocked.group.undo_deletion()
    assert clocked.join().parked


def test_draining_answers_whoever_waits() -> None:
    clocked = Clocked()
    clocked.join()
    clocked.join()
    clocked.pass_time(DELAY)
    syncing = clocked.sync("c-2")
    clocked.group.drain()
    assert syncing.error == E.NOT_COORDINATOR
    joining = clocked.join("c-1", protocols=(("range", b"new"),))
    clocked.group.drain()
    assert joining.error == E.NOT_COORDINATOR


def test_a_stored_group_goes_on_without_a_rebalance() -> None:
    clocked = Clocked()
    clocked.join(instance="i")
    clocked.join()
    clocked.pass_time(DELAY)
    clocked.sync("c-2")
    clocked.sync("i-1", {"i-1": b"one", "c-2": b"\xfftwo"}, instance="i")
    again = Clocked()
    again.now = 1_000
    again.group.restore(clocked.saved[-1], {}, again.now)
    assert again.heartbeat("c-2", 1) == E.NONE
    assert again.sync("c-2", generation=1).answer.assignment == b"\xfftwo"
    assert again.join(instance="i").answer.generation == 1
    assert again.may_commit("c-2", 1) == E.NONE
    again.pass_time(SESSION)
    assert again.group.state is ClassicState.EMPTY
    assert again.group.generation > clocked.group.generation


def test_states_follow_the_table() -> None:
    with pytest.raises(AssertionError, match="Empty to Stable"):
        Clocked().group._become(ClassicState.STABLE)
