"""A real browser without a window, to look at pages as people do."""

from __future__ import annotations

import struct
import subprocess
import zlib
from pathlib import Path

_SECONDS = 60


class Browser:
    """Chromium. Every page is opened by a process of its own, with a new profile."""

    def __init__(self, binary: str, folder: Path) -> None:
        self._binary = binary
        self._folder = folder
        self._pages = 0

    def dom(self, url: str, *flags: str) -> str:
        """The page as the browser understood it."""
        return self._run(url, "--dump-dom", *flags)

    def screenshot(self, url: str, picture: Path, *flags: str, size: str = "1400,1600") -> Path:
        """What is seen of the page, as PNG."""
        self._run(url, f"--screenshot={picture}", f"--window-size={size}", *flags)
        return picture

    def _run(self, url: str, *flags: str) -> str:
        self._pages += 1
        profile = self._folder / f"profile-{self._pages}"
        quiet = (
            "--disable-quic", "--no-first-run", "--disable-background-networking",
            "--disable-component-update", "--disable-sync", "--disable-gpu",
        )  # fmt: skip
        done = subprocess.run(
            [
                self._binary, "--headless", "--no-sandbox", *quiet, f"--user-data-dir={profile}",
                *flags, url,
            ],
            capture_output=True, text=True, timeout=_SECONDS, check=True,
        )  # fmt: skip
        return done.stdout


def corner(picture: Path) -> str:
    """The colour of a PNG's first pixel, as "#rrggbb". Before it nothing is that a filter needs."""
    data = picture.read_bytes()
    at, pixels = 8, b""
    while at < len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        if kind == b"IDAT":
            pixels += data[at + 8 : at + 8 + length]
        at += 12 + length
    return "#" + zlib.decompress(pixels)[1:4].hex()
