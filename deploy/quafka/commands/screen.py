"""A view that is redrawn on a terminal, with keys: `quafka top` and `quafka groups list --watch`.

It uses the terminal's alternate screen, so that what was there before is there again afterwards.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
import termios
import tty
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Self

from quafka.commands.output import width
from quafka_client.errors import ClientError, LoginError

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _TO_END_OF_LINE, _REST = "\x1b[H", "\x1b[K", "\x1b[J"
_STYLE = re.compile(r"(\x1b\[[0-9;]*m)")
_RESET = "\x1b[0m"
QUIT = "q"

Draw = Callable[[], Awaitable[str]]


def is_terminal() -> bool:
    """Whether a view can be redrawn: otherwise it is printed once."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


async def watch(
    draw: Draw,
    seconds: float,
    keys: Mapping[str, Callable[[], None]] = MappingProxyType({}),
) -> None:
    """Draw again and again until q is pressed; at once after one of `keys`.

    A failure is shown in place of the view, and the next round tries again. Raises LoginError.
    """
    with _Screen() as screen:
        while True:
            try:
                view = await draw()
            except LoginError:
                raise
            except ClientError as e:
                view = f"quafka: {e}"
            screen.show(view)
            key = await screen.key(seconds)
            if key == QUIT:
                return
            if key is not None and key in keys:
                keys[key]()


class _Screen:
    """The terminal while a view is on it."""

    def __init__(self) -> None:
        self._keyboard = sys.stdin.fileno() if sys.stdin.isatty() else None
        self._before: list[object] | None = None
        self._pressed: asyncio.Queue[str] = asyncio.Queue()

    def __enter__(self) -> Self:
        if self._keyboard is not None:
            self._before = termios.tcgetattr(self._keyboard)
            tty.setcbreak(self._keyboard)
            asyncio.get_running_loop().add_reader(self._keyboard, self._read)
        sys.stdout.write(_ENTER)
        sys.stdout.flush()
        return self

    def __exit__(self, *_: object) -> None:
        if self._keyboard is not None and self._before is not None:
            asyncio.get_running_loop().remove_reader(self._keyboard)
            termios.tcsetattr(self._keyboard, termios.TCSADRAIN, self._before)  # type: ignore[arg-type] # what tcgetattr has returned
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()

    def _read(self) -> None:
        assert self._keyboard is not None
        for key in os.read(self._keyboard, 64).decode("utf-8", "replace"):
            self._pressed.put_nowait(key)

    def show(self, view: str) -> None:
        """Replace what is shown; what does not fit is left out."""
        columns, rows = shutil.get_terminal_size()
        lines = view.splitlines()[:rows]
        body = f"{_TO_END_OF_LINE}\n".join(clipped(line, columns) for line in lines)
        sys.stdout.write(f"{_HOME}{body}{_TO_END_OF_LINE}{_REST if len(lines) < rows else ''}")
        sys.stdout.flush()

    async def key(self, seconds: float) -> str | None:
        """The next key; None: none was pressed for so long."""
        try:
            async with asyncio.timeout(seconds):
                return await self._pressed.get()
        except TimeoutError:
            return None


def shown_width(line: str) -> int:
    """The columns of a line; styles take none."""
    return width(_STYLE.sub("", line))


def clipped(line: str, columns: int) -> str:
    """The beginning of a line that fits; styles take no columns."""
    left, found = columns, ""
    for part in _STYLE.split(line):
        if part.startswith("\x1b"):
            found += part
            continue
        if width(part) <= left:
            found, left = found + part, left - width(part)
            continue
        for character in part:
            left -= width(character)
            if left < 0:
                return found + (_RESET if "\x1b" in found else "")
            found += character
    return found
