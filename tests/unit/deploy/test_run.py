"""The event loop, errors and interrupts of client commands."""

from __future__ import annotations

import signal
from contextlib import suppress

import pytest

from quafka.commands.run import interruptible


def test_an_interrupt_that_a_callback_swallows_still_ends_a_loop() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interruptible() as check:
        check()
        with suppress(KeyboardInterrupt):  # as C code does with the exceptions of callbacks
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            check()
    assert signal.getsignal(signal.SIGINT) is before
