"""SIGHUP: a program reads again what may change while it runs, or stops with its terminal."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

_LOOK_AGAIN_SECONDS = 0.5
"""The kernel sends the signal shortly before it takes the terminal away."""


def on_hang_up(
    loop: asyncio.AbstractEventLoop, reload: Callable[[], object], stop: Callable[[], object]
) -> None:
    """Call `reload` at each SIGHUP, or `stop` if the program's terminal has been closed.

    A program that was started with the signal ignored (nohup) outlives its terminal.
    """
    ends_with_terminal = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN and _has_terminal()

    def act() -> None:
        if not stop_without_terminal():
            reload()
            loop.call_later(_LOOK_AGAIN_SECONDS, stop_without_terminal)

    def stop_without_terminal() -> bool:
        if not ends_with_terminal or _has_terminal():
            return False
        stop()
        return True

    loop.add_signal_handler(signal.SIGHUP, act)


def _has_terminal() -> bool:
    """Whether the process has a controlling terminal; the kernel takes one that is closed away."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
