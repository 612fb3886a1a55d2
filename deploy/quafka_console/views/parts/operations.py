"""The status pages that the console may read, for views."""

from __future__ import annotations

from quafka_console.data.recent import Recent
from quafka_console.data.status_reader import StatusPages, read_status_pages
from quafka_console.session import ConsoleSession
from quafka_console.views.parts import states

_RECENT = Recent[StatusPages](2.0)


async def status_pages_of(session: ConsoleSession) -> StatusPages:
    """The pages of the gateways and brokers that the settings name.

    Raises:
        ForOperatorsError: the person may not see them.
        ClientError: the gateway does not answer.
    """
    await session.check_operator()
    ports = tuple(session.operations)
    return await _RECENT.read(ports, lambda: read_status_pages(ports))


def status_problems(read: StatusPages) -> None:
    """Show which processes could not be read, and what to do if none is named."""
    for sentence in read.problems.values():
        states.problem(sentence)
    if not read.pages and not read.problems:
        no_operations_port()


def no_operations_port() -> None:
    """Show what to do to see processes."""
    states.empty(
        "No operations port is known",
        "Name the ports of gateways and brokers in the console's setting console.operations.",
    )
