"""The broker's control socket for commands on this machine, `control.sock` in its data folder.

Its mode is 0600: only users that may read the data folder's files can use it. A connection carries
one request, a JSON object on a line, and one answer.

    {"do": "pin"}           takes a cut of the log and holds its files: {"pin": name}
    {"do": "alter-users"}   sets and removes users: see security/control.py

or {"error": one sentence}. `control_server` answers; this module has the client.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from quafka_loop import sockets

SOCKET = "control.sock"
MAX_LINE = 16 << 10
PIN_REQUEST = {"do": "pin"}
_ANSWER_SECONDS = 60.0


class ControlError(Exception):
    """The broker could not serve a request; the message gives the reason."""


class NoBrokerError(Exception):
    """No broker listens in this data folder."""


def request_pin(data: Path) -> str:
    """Request a cut from the broker that runs in a data folder; returns the pin's name. Blocks.

    Raises:
        NoBrokerError: no broker runs there.
        ControlError: the broker did not answer, or could not take the cut.
    """
    return str(request(data, PIN_REQUEST)["pin"])


def request(data: Path, what: object) -> dict[str, Any]:
    """Send a request to the broker that runs in a data folder; returns its answer. Blocks.

    Raises:
        NoBrokerError: no broker runs there.
        ControlError: the broker did not answer, or could not serve the request.
    """
    with sockets.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_ANSWER_SECONDS)
        try:
            with short_path(data) as path:
                connection.connect(path)
        except (FileNotFoundError, ConnectionRefusedError) as e:
            raise NoBrokerError(str(e)) from e
        except OSError as e:
            raise ControlError(f"cannot connect to the broker: {e.strerror or e}") from e
        try:
            connection.sendall(json.dumps(what).encode() + b"\n")
            with connection.makefile("rb") as answers:
                line = answers.readline(MAX_LINE)
            answer = cast("dict[str, Any]", json.loads(line))
        except (OSError, ValueError) as e:
            raise ControlError(f"the broker did not answer: {e}") from e
    if "error" in answer:
        raise ControlError(str(answer["error"]))
    return answer


@contextmanager
def short_path(data: Path) -> Generator[str]:
    """A path to the socket below the system's limit of 108 bytes."""
    fd = os.open(data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{SOCKET}"
    finally:
        os.close(fd)
