"""What a machine may be unable to do, whatever is installed on it."""

from __future__ import annotations

from typing import NoReturn

import pytest

UNABLE = "this machine is unable to: "


def unable(what: str) -> NoReturn:
    """Skip a test for want of a right or a device. `--forbid-skips` lets it pass, and says so."""
    pytest.skip(UNABLE + what)
