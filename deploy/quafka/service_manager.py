"""Reports the state of this process to systemd, or to another service manager with sd_notify(3).

The manager names a datagram socket in NOTIFY_SOCKET: a path, or a name in the abstract namespace
after `@`. A message is lines of NAME=value. Without the variable, nothing is sent.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Mapping

from quafka_loop import clock, sockets

log = logging.getLogger("quafka")

VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC")
"""They are for the process that the manager has started, not for its children."""
_SEND_SECONDS = 1.0
"""How long a message waits while the manager's queue is full."""


class ServiceManager:
    """The service manager of this process, if it has one that wants to know its state."""

    def __init__(self, address: str = "", watchdog_seconds: float | None = None) -> None:
        """`address`: of NOTIFY_SOCKET; "": no manager.

        `watchdog_seconds`: the manager restarts a process that is silent for so long.
        """
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._watchdog_seconds = watchdog_seconds
        self._is_ready = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> ServiceManager:
        """The manager that the environment names."""
        address = environment.get("NOTIFY_SOCKET", "")
        if not address.startswith(("/", "@")):  # systemd in a virtual machine also has vsock:
            return cls()
        return cls(address, _watchdog_seconds(environment))

    def ready(self, status: str) -> None:
        """Report that the program serves; from now on the loop's silence is noticed.

        The caller is a task of the event loop.
        """
        self._is_ready = True
        self._send("READY=1", f"STATUS={status}")
        if self._address and self._watchdog_seconds is not None:
            # sd_watchdog_enabled(3): half of the time.
            self._keep_alive(asyncio.get_running_loop(), self._watchdog_seconds / 2)

    def reloading(self) -> None:
        """Report the beginning of a reload; `reloaded` reports its end. Before `ready`: nothing."""
        if not self._is_ready:
            return
        # systemd 253 compares it with the time of its signal (Type=notify-reload).
        microseconds = int(clock.monotonic() * 1e6)
        self._send("RELOADING=1", f"MONOTONIC_USEC={microseconds}")

    def reloaded(self) -> None:
        """Report the end of a reload."""
        if self._is_ready:
            self._send("READY=1")

    def stopping(self) -> None:
        """Report that the program drains."""
        self._send("STOPPING=1", "STATUS=completing requests in progress")

    def _keep_alive(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._send("WATCHDOG=1")
        loop.call_later(seconds, self._keep_alive, loop, seconds)

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        message = "\n".join(line.replace("\n", " ") for line in lines)
        try:
            with sockets.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
                sending.settimeout(_SEND_SECONDS)
                sending.connect(self._address)
                sending.send(message.encode())
        except OSError as e:
            log.warning("cannot report %s to the service manager: %s", lines[0], e)


def _watchdog_seconds(environment: Mapping[str, str]) -> float | None:
    """The watchdog's time; None without one, or if it is another process's."""
    microseconds = environment.get("WATCHDOG_USEC", "")
    if not microseconds.isdecimal() or not int(microseconds):
        return None
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return int(microseconds) / 1e6
