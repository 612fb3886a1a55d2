"""The process that supervises the programs of `quafka up` and `quafka gateway --workers N`.

The command reads the settings and replaces itself by this process (exec), because what it loaded
for that would stay in memory as long as the programs run.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    # Nothing here uses TLS, and OpenSSL takes a fifth of this process's memory. asyncio does
    # without the module where Python was built without it.
    sys.modules["ssl"] = None  # type: ignore[assignment]

import asyncio
import os
import signal
from functools import partial

from quafka.exit_codes import EXIT_INTERRUPTED
from quafka.greetings import Greeting
from quafka.plan import Plan, PlannedChild, read_plan
from quafka.supervise import Child, say, supervise


def main(plan: Plan) -> int:
    """Run the children until SIGTERM, SIGINT or the end of the lifeline. Returns the exit code."""
    children: list[Child] = []
    for each in plan.children:
        children.append(_child(each, children))
    extra = None if plan.extra is None else _child(plan.extra, children)
    try:
        return asyncio.run(_run(children, extra, plan))
    except KeyboardInterrupt:  # before `supervise` has installed its signal handlers
        return EXIT_INTERRUPTED


def _child(planned: PlannedChild, children: list[Child]) -> Child:
    command = (sys.executable, "-m", "quafka", planned.program)
    return Child(
        planned.name,
        command,
        partial(_arguments, planned, children),
        planned.environment,
        planned.listening_fd,
    )


async def _run(children: list[Child], extra: Child | None, plan: Plan) -> int:
    if plan.lifeline_fd is not None:
        loop = asyncio.get_running_loop()
        loop.add_reader(plan.lifeline_fd, _lifeline_ended, plan.lifeline_fd)
    return await supervise(children, partial(_greet, plan.greeting, children), extra)


def _arguments(planned: PlannedChild, children: list[Child]) -> dict[str, str]:
    return planned.arguments({child.name: child.ready for child in children})


def _greet(greeting: Greeting, children: list[Child]) -> None:
    text = greeting.show({child.name: child.ready for child in children})
    if text:
        say(text)


def _lifeline_ended(fd: int) -> None:
    """The parent process has ended: drain."""
    if not os.read(fd, 64):
        asyncio.get_running_loop().remove_reader(fd)
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(read_plan(int(sys.argv[1]))))
