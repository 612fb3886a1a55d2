"""No test of `tests/unit` and `tests/property` waits for the machine: a rule on their sources."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("tests/unit", "tests/property")

REFUSED = {
    "time": "use quafka_loop.clock",
    "threading": "use quafka_loop.threads",
    "queue": "use quafka_loop.threads",
    "concurrent.futures.ThreadPoolExecutor": "use quafka_loop.threads",
    "concurrent.futures.ProcessPoolExecutor": "belongs in tests/integration/kernel",
    "multiprocessing": "belongs in tests/integration/kernel",
    "subprocess.Popen": "belongs in tests/integration/kernel",
    "asyncio.create_subprocess_exec": "belongs in tests/integration/kernel",
    "asyncio.create_subprocess_shell": "belongs in tests/integration/kernel",
    "asyncio.subprocess": "belongs in tests/integration/kernel",
    "asyncio.SelectorEventLoop": "use asyncio.new_event_loop",
    "http.server": "belongs in tests/integration/kernel",
    "http.client": "use tests.support.http_pages",
    "socketserver": "belongs in tests/integration/kernel",
    "urllib.request": "use tests.support.http_pages",
    "datetime.datetime.now": "use quafka_loop.clock.utc_now",
    "datetime.datetime.utcnow": "use quafka_loop.clock.utc_now",
}
"""Names that depend on the machine's clock, its threads or other processes, and what to do.

`subprocess.run` is allowed: it returns when the program has ended, however long that takes. With
`timeout=` it depends on the machine.
"""
ALLOWED = {
    "time.gmtime", "time.strftime", "time.struct_time",
    "threading.active_count", "threading.current_thread", "threading.get_native_id",
    "threading.excepthook", "threading.ExceptHookArgs",
}  # fmt: skip
EXEMPT = {
    "tests/unit/test_simulated_time.py": "names them",
    "tests/unit/test_seam.py": "names them",
    "tests/support/virtual/loop.py": "is the simulated runtime",
    "tests/support/progress.py": "shows how long the tests themselves take",
    # Of these, tests on simulated time use what neither waits nor starts anything:
    "tests/support/apache_kafka.py": "the folders that Kafka has left",
    "tests/support/command.py": "the class of a command's results",
    "tests/support/fetch_calls.py": "requests",
    "tests/support/java.py": "the search for Java",
    "tests/support/kafka_folders.py": "the folders that Kafka has left",
    "tests/support/prometheus.py": "parsers",
    "tests/support/quic_flood.py": "packets",
}


class _Names(ast.NodeVisitor):
    """Finds the full names that a module imports or uses as attributes of what it imports."""

    def __init__(self) -> None:
        self.found: list[tuple[int, str]] = []
        self._modules: dict[str, str] = {}

    def visit_Import(self, node: ast.Import) -> None:
        for each in node.names:
            local = each.asname or each.name.partition(".")[0]
            self._modules[local] = each.name if each.asname else local
            if "." in each.name:
                self.found.append((node.lineno, each.name))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for each in node.names:
            name = f"{node.module}.{each.name}"
            self._modules[each.asname or each.name] = name
            self.found.append((node.lineno, name))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        parts = [node.attr]
        inner: ast.expr = node.value
        while isinstance(inner, ast.Attribute):
            parts.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name) and inner.id in self._modules:
            full = [self._modules[inner.id], *reversed(parts)]
            self.found.append((node.lineno, ".".join(full)))
        else:
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        if (
            isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and self._modules.get(node.func.value.id) == "subprocess"
            and any(keyword.arg == "timeout" for keyword in node.keywords)
        ):
            self.found.append((node.lineno, "subprocess with timeout="))


def problems(source: str) -> list[str]:
    """What a module uses of the machine."""
    names = _Names()
    names.visit(ast.parse(source))
    return sorted({f"line {line}: {name}" for line, name in names.found if _is_refused(name)})


def _is_refused(name: str) -> bool:
    if name == "subprocess with timeout=":
        return True
    if any(name == each or name.startswith(f"{each}.") for each in ALLOWED):
        return False
    return any(name == each or name.startswith(f"{each}.") for each in REFUSED)


def modules() -> Iterator[Path]:
    """The modules of the tests, and those of `tests/support` that they import."""
    waiting = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    seen: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path not in seen:
            seen.add(path)
            yield path
            waiting += _support_of(path)


def _support_of(path: Path) -> Iterator[Path]:
    names = _Names()
    names.visit(ast.parse(path.read_text()))
    for _, name in names.found:
        parts = name.split(".")
        for each in (parts, parts[:-1]):
            found = ROOT.joinpath(*each).with_suffix(".py")
            if name.startswith("tests.support.") and found.is_file():
                yield found


def test_nothing_here_waits_for_the_machine() -> None:
    paths = [path for path in modules() if str(path.relative_to(ROOT)) not in EXEMPT]
    assert len(paths) > 300
    found = {str(path): problems(path.read_text()) for path in paths}
    assert {path: what for path, what in found.items() if what} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.sleep(1)",
        "import time as t\nt.monotonic()",
        "from time import perf_counter",
        "import threading\nthreading.Thread()",
        "from threading import Event",
        "from concurrent.futures import ThreadPoolExecutor",
        "import concurrent.futures\nconcurrent.futures.ThreadPoolExecutor(1)",
        "from concurrent import futures\nfutures.ThreadPoolExecutor(1)",
        "import subprocess\nsubprocess.Popen(['x'])",
        "import subprocess\nsubprocess.run(['x'], timeout=3)",
        "import asyncio\nasyncio.create_subprocess_exec('x')",
        "from asyncio.subprocess import PIPE",
        "import http.server",
        "from datetime import UTC, datetime\ndatetime.now(UTC)",
        "import datetime\ndatetime.datetime.now()",
    ],
)
def test_what_waits_for_the_machine_is_found(source: str) -> None:
    assert len(problems(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "from quafka_loop import clock\nclock.sleep(1)\nclock.monotonic()",
        "import asyncio\nasyncio.sleep(1)",
        "import subprocess\nsubprocess.run(['x'])",
        "import threading\nthreading.active_count()",
        "from quafka_loop import threads\nthreads.Thread(target=print)",
        "time = 3\nprint(time)",
    ],
)
def test_what_runs_on_simulated_time_is_allowed(source: str) -> None:
    assert problems(source) == []
