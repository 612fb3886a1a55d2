"""When failing calls to the store are a problem that readiness reports."""

from __future__ import annotations

from quafka_broker.cluster.store_calls import PATIENCE_SECONDS, StoreCalls


def test_calls_that_fail_for_a_while_are_a_problem_until_one_is_answered() -> None:
    calls = StoreCalls("this broker cannot register")
    calls.fail(TimeoutError(), 10.0)
    assert calls.problem(10.0 + PATIENCE_SECONDS - 1) == ""
    calls.fail(PermissionError("access is denied"), 10.0 + PATIENCE_SECONDS)
    assert calls.problem(10.0 + PATIENCE_SECONDS) == "this broker cannot register: access is denied"
    calls.succeed()
    assert calls.problem(99.0) == ""
    calls.fail(TimeoutError(), 100.0)
    assert calls.problem(100.0) == ""
