"""What some tests need of the machine; decided before such a test opens anything.

    @pytest.mark.needs("kcat")
    @pytest.mark.needs("java", "mvn", fetch=kafka_tools)

`tests/conftest.py` looks at the marks in front of all fixtures, and skips. `fetch` is called before
the test's time begins: what it downloads or builds is kept. A test that finds out in its midst that
something is not there fails: its mark is missing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import pytest

TOOLS = {
    "chromedriver": "chromium-driver",
    "chromium": "chromium",
    "debootstrap": "debootstrap",
    "docker-compose": "docker-compose",
    "dpkg-deb": "dpkg",
    "fish": "fish",
    "fiu-run": "fiu-utils",
    "go": "golang-go",
    "java": "default-jdk-headless",
    "kcat": "kcat",
    "mandoc": "mandoc",
    "mkfs.ext4": "e2fsprogs",
    "mkfs.xfs": "xfsprogs",
    "mvn": "maven",
    "node": "nodejs",
    "npm": "npm",
    "podman": "podman",
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "redis-server": "redis-server",
    "runc": "runc",
    "systemd-analyze": "systemd",
    "zsh": "zsh",
}
"""Optional programs, and the Debian package of each."""
GO_TOOLS = {
    "helm": "helm.sh/helm/v3/cmd/helm",
    "minio": "github.com/minio/minio",
    "versitygw": "github.com/versity/versitygw/cmd/versitygw",
}
"""Optional programs that Debian has not, and where `go install` finds each."""
OF_FIXTURES = {
    "browser": ("chromium",),
    "driver": ("chromium", "chromedriver"),
    "faults": ("fiu-run",),
    "kafkajs": ("node", "npm"),
    "kcat": ("kcat",),
    "spark": ("java",),
}
"""What tests need that use these fixtures."""
ONLY_PATH = "TESTS_ONLY_PATH"
"""An environment variable: programs are looked for nowhere but on the PATH."""
REASON = "not installed here: "
FETCH_SECONDS = 300
"""How long a download or a build may take on a busy machine."""
_FAILED = pytest.StashKey[Exception]()


class CannotFetchError(Exception):
    """Something cannot be downloaded; one sentence says what."""


def find(tool: str) -> str | None:
    """Where a program is, if it is."""
    path = os.environ.get("PATH", "")
    if ONLY_PATH not in os.environ:
        path += ":/usr/sbin:/sbin"  # of users who are not root it is no part
    return shutil.which(tool, path=path)


def program(tool: str) -> str:
    """Where a program is that the test is marked to need."""
    found = find(tool)
    assert found is not None, f"a test that uses {tool} must be marked needs({tool!r})"
    return found


def tools(item: pytest.Item) -> set[str]:
    """The optional programs that a test needs."""
    fixtures: list[str] = getattr(item, "fixturenames", [])
    needed = {tool for name in fixtures for tool in OF_FIXTURES.get(name, ())}
    return needed.union(*(mark.args for mark in item.iter_markers("needs")))


def fetch(item: pytest.Item) -> None:
    """Call the `fetch` of a test whose tools are here; `check` reports what has failed."""
    if _missing(item):
        return
    for mark in item.iter_markers("needs"):
        get: Callable[[], object] = mark.kwargs.get("fetch", lambda: None)
        try:
            get()
        except Exception as e:
            item.stash[_FAILED] = e
            return


def check(item: pytest.Item) -> None:
    """Skip a test that cannot run here."""
    if missing := _missing(item):
        named = ", ".join(f"{tool} ({_origin(tool)})" for tool in missing)
        pytest.skip(f"{REASON}{named}")
    failed = item.stash.get(_FAILED, None)
    if isinstance(failed, CannotFetchError):
        pytest.skip(str(failed))
    if failed is not None:
        raise failed


def _missing(item: pytest.Item) -> list[str]:
    return sorted(tool for tool in tools(item) if find(tool) is None)


def _origin(tool: str) -> str:
    return f"go install {GO_TOOLS[tool]}" if tool in GO_TOOLS else f"Debian: {TOOLS[tool]}"


def named_in(reason: str) -> set[str]:
    """The tools that a skip's reason names; none where it is a skip of another kind."""
    _, found, rest = reason.partition(REASON)
    return {one.split(" (")[0] for one in rest.split(", ")} if found else set()
