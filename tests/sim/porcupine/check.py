"""Runs the Go program of this folder on a history."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence

from tests.sim.checkers import Violation
from tests.sim.history import Event, dumps
from tests.support.go import go_porcupine

TIMEOUT_S = 100


def check(events: Sequence[Event]) -> list[Violation]:
    """The keys whose calls have no order that explains all answers.

    Porcupine searches; a key for which it needs more than ten seconds is a violation, too, because
    nothing is known of it.
    """
    done = subprocess.run(
        [str(go_porcupine())],
        input=dumps(events),
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    return [_violation(result) for result in results if result["result"] != "Ok"]


def _violation(result: dict[str, object]) -> Violation:
    if result["result"] == "Unknown":
        return Violation("not decided", f"{result['key']}: the search took too long", ())
    message = f"{result['key']}: no order of the calls explains all answers"
    events = result["events"]
    assert isinstance(events, list)
    return Violation("not linearizable", message, tuple(events))
